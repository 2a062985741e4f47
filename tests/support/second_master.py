"""A second master of a local cluster, which waits for the first one's end."""

from __future__ import annotations

from contextlib import AbstractContextManager

from hqueue import local
from hqueue.local.configuration import QUICK_COMPILER, Launcher
from hqueue.local.freeports import choose_ports
from hqueue.local.process import ProcessPlan
from tests.support.added_processes import added, settings_of

__all__ = ["SECOND_MASTER", "second_master"]

SECOND_MASTER = "master-2"


def second_master(server: local.LocalServer) -> AbstractContextManager[None]:
    """A process named `SECOND_MASTER`, as long as the context lasts."""
    (port,) = choose_ports(["master"]).values()

    def planned(launcher: Launcher) -> ProcessPlan:
        first = settings_of(server, "master", "hbase-site.xml")
        return launcher.plan(
            SECOND_MASTER,
            "org.apache.hadoop.hbase.master.HMaster",
            "start",
            host="127.0.0.1",
            ports={"master": port},
            heap_mb=256,
            options=QUICK_COMPILER,
            hbase={**first, "hbase.master.port": port},
            hdfs=settings_of(server, "master", "hdfs-site.xml"),
        )

    return added(server, planned)
