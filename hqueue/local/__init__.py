"""Real HBase servers on this machine, for development and tests.

    with hqueue.local.start() as server:              # ready: rows are written and read
        client = hqueue.connect(server.settings())
    ...                                               # stopped: no process is left

`start` brings up ZooKeeper and HBase from the jars that ``pom.xml`` names, and returns a
`LocalServer`. Clients speak to it natively; with ``gateways=True`` HBase's two Thrift gateways are
started, too, and used. Profiles:

    standalone   one JVM, and two for gateways, data in plain files; under 20 s and 1 GiB
    cluster      nine JVMs: HDFS with three data nodes, three region servers on three hosts; six
                 more with a gateway pair on each; about 45 s and 3 to 4 GiB
    secure       a KDC, and one JVM that asks for Kerberos, by TLS or in clear; no gateways

A server lives in a home (see `hqueue.local.home`), outlives the process that started it, and
is found again by its home: `status`, `logs`, `attach`, `stop`, and `reset`, which deletes
its data. On the ``cluster`` profile every acknowledged write survives the death of any process.
On ``standalone`` it survives the death of the processes, but not of the machine.

Java 17 or newer is needed, and a way to fetch the jars once: Maven, or an importable PySpark.
"""

from __future__ import annotations

from hqueue.runtime.extras import installing as _installing

try:
    import filelock as _filelock  # noqa: F401
    import psutil as _psutil  # noqa: F401
    import tomli_w as _tomli_w  # noqa: F401
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        f"a package that hqueue.local needs is not installed: {_installing('local')}",
        name=_missing.name,
    ) from _missing

from hqueue.local.lifecycle import PROFILES, attach, logs, start, status
from hqueue.local.logs import LogLine
from hqueue.local.server import LocalServer, ProcessStatus, Status
from hqueue.local.stopping import reset, stop

__all__ = [
    "PROFILES",
    "LocalServer",
    "LogLine",
    "ProcessStatus",
    "Status",
    "attach",
    "logs",
    "reset",
    "start",
    "status",
    "stop",
]
