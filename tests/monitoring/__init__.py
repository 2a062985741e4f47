"""Writes what follows from the list of metrics: the reference page, the dashboard for Grafana, the
rules of alerts for Prometheus with their tests, and the runbook.
"""
