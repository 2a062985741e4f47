"""Processes beside those of a local server, for as long as a test."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from xml.etree import ElementTree

from hqueue import local
from hqueue.local.configuration import Launcher
from hqueue.local.home import Home
from hqueue.local.jars import ensure_jars
from hqueue.local.java import find_java
from hqueue.local.process import LocalProcess, ProcessPlan, spawn
from hqueue.local.starting import await_listening
from hqueue.local.versions import hbase_jars
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline

__all__ = ["added", "security_options_of", "settings_of"]

START_S = 60.0
LOCK_S = 60.0


@contextlib.contextmanager
def added(server: local.LocalServer, *planned: Callable[[Launcher], ProcessPlan]) -> Iterator[None]:
    """Start processes, and wait until they listen. Kill them afterwards; the server has them no
    more then.
    """
    home = Home.of(server.home)
    launcher = Launcher(home, find_java(), ensure_jars(hbase_jars()), ensure_jars())
    processes = [spawn(plan(launcher)) for plan in planned]
    with home.locked(LOCK_S):
        state = home.read_state()
        assert state is not None
        for process in processes:
            state = state.with_process(process)
        home.write_state(state)
    try:
        for process in processes:
            await_listening(process, deadline=Deadline(SYSTEM_CLOCK, START_S * 1e3))
        yield
    finally:
        for process in processes:
            server.kill(process.name)
        _forget(home, processes)


def _forget(home: Home, processes: list[LocalProcess]) -> None:
    names = {process.name for process in processes}
    with home.locked(LOCK_S):
        state = home.read_state()
        assert state is not None
        others = tuple(each for each in state.processes if each.name not in names)
        home.write_state(dataclasses.replace(state, processes=others))


def security_options_of(server: local.LocalServer, process: str) -> tuple[str, ...]:
    """What the JVM of a process of the server knows of Kerberos, and of that of ZooKeeper."""
    state = Home.of(server.home).read_state()
    assert state is not None
    (found,) = [each for each in state.processes if each.name == process]
    kinds = ("-Djava.security.", "-Dzookeeper.")
    return tuple(option for option in found.plan.command if option.startswith(kinds))


def settings_of(server: local.LocalServer, process: str, file: str) -> dict[str, object]:
    """The settings in one of the files of Hadoop's kind that a process of the server has."""
    path = Home.of(server.home).conf / process / file
    entries = ElementTree.parse(path).getroot().iter("property")
    return {str(each.findtext("name")): each.findtext("value") for each in entries}
