"""A second master of a local cluster, which waits for the first one's end."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from hqueue import local
from hqueue.local.configuration import QUICK_COMPILER, Launcher
from hqueue.local.freeports import choose_ports
from hqueue.local.home import Home
from hqueue.local.jars import ensure_jars
from hqueue.local.java import find_java
from hqueue.local.process import spawn
from hqueue.local.starting import await_listening
from hqueue.local.versions import hbase_jars
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline

__all__ = ["SECOND_MASTER", "second_master"]

SECOND_MASTER = "master-2"
START_S = 60.0
LOCK_S = 60.0


@contextlib.contextmanager
def second_master(server: local.LocalServer) -> Iterator[None]:
    """Start a process named `SECOND_MASTER`, and wait until it listens. Kill it afterwards; the
    server has it no more then.
    """
    home = Home.of(server.home)
    first = home.conf / "master"
    (port,) = choose_ports(["master"]).values()
    plan = Launcher(home, find_java(), ensure_jars(hbase_jars())).plan(
        SECOND_MASTER,
        "org.apache.hadoop.hbase.master.HMaster",
        "start",
        host="127.0.0.1",
        ports={"master": port},
        heap_mb=256,
        options=QUICK_COMPILER,
        hbase={**_read(first / "hbase-site.xml"), "hbase.master.port": port},
        hdfs=_read(first / "hdfs-site.xml"),
    )
    process = spawn(plan)
    with home.locked(LOCK_S):
        state = home.read_state()
        assert state is not None
        home.write_state(state.with_process(process))
    try:
        await_listening(process, deadline=Deadline(SYSTEM_CLOCK, START_S * 1e3))
        yield
    finally:
        server.kill(SECOND_MASTER)
        with home.locked(LOCK_S):
            state = home.read_state()
            assert state is not None
            others = tuple(each for each in state.processes if each.name != SECOND_MASTER)
            home.write_state(dataclasses.replace(state, processes=others))


def _read(path: Path) -> dict[str, object]:
    """The settings in one of Hadoop's files."""
    entries = ElementTree.parse(path).getroot().iter("property")
    return {str(each.findtext("name")): each.findtext("value") for each in entries}
