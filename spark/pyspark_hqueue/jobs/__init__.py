"""Pipelines: archive a queue, compact and replay an archive, copy a queue, count its messages.

Each is a class that says what it would do (`pending`) and does it (`run`), and can be used from any
program that has a Spark session. As commands they are ``hqueue pipeline …``; each file is that
command as well, for ``spark-submit``. All can be killed anywhere and started again.
"""
