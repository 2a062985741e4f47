"""Examines a configuration, and names what is wrong with it: files, certificates, Kerberos, host
names, ZooKeeper, HBase, hubs. Each finding says what was found and what to do.

Each check is a generator of findings in a module of its own. `examination` runs them, and bounds
each check's time.
"""

from hqueue.doctor.examination import Subject, examine, without_writes
from hqueue.doctor.findings import Finding, Level

__all__ = ["Finding", "Level", "Subject", "examine", "without_writes"]
