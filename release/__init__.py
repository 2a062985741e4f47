"""Builds a release, and proves what is promised of it: `make release`."""
