"""The ZooKeeper of a cluster: one server, or an ensemble of several."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hqueue.local.configuration import QUICK_COMPILER, Launcher
from hqueue.local.process import ProcessPlan

__all__ = ["SESSION_TIMEOUT_MS", "zookeeper_names", "zookeeper_plans", "zookeeper_port_names"]

SESSION_TIMEOUT_MS = 4_000
TICK_MS = 500
JOIN_TICKS = 20
SILENCE_TICKS = 4
"""After 2 s without a message, followers give a leader up, and a leader its followers."""


def zookeeper_names(count: int) -> tuple[str, ...]:
    """The servers' names: ``zookeeper``, or ``zookeeper-1`` and so on for several."""
    return ("zookeeper",) if count == 1 else tuple(f"zookeeper-{n}" for n in range(1, count + 1))


def zookeeper_port_names(count: int) -> tuple[str, ...]:
    """The names of the ports that these servers listen on; several also listen for each other."""
    names = zookeeper_names(count)
    if count == 1:
        return names
    return tuple(port for name in names for port in (name, _peer(name), _election(name)))


def zookeeper_plans(
    launcher: Launcher,
    ports: Mapping[str, int],
    data: Path,
    *,
    at: Mapping[str, str],
    count: int,
    stage: int,
) -> list[ProcessPlan]:
    """Write the servers' settings, and plan how to start them.

    Args:
        launcher: of their processes.
        ports: by `zookeeper_port_names`.
        data: the folder in which each server has one of its name.
        at: each server's address, by its name.
        count: of the servers.
        stage: in which they are started.
    """
    names = zookeeper_names(count)
    members = {
        f"server.{number}": f"{at[name]}:{ports[_peer(name)]}:{ports[_election(name)]}"
        for number, name in enumerate(names, 1)
        if count > 1
    }
    plans = []
    for number, name in enumerate(names, 1):
        folder = data / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "myid").write_text(f"{number}\n", encoding="utf-8")
        settings = launcher.home.conf / f"{name}.cfg"
        values = {
            "dataDir": folder,
            "clientPort": ports[name],
            "clientPortAddress": at[name],
            "tickTime": TICK_MS,
            "initLimit": JOIN_TICKS,
            "syncLimit": SILENCE_TICKS,
            "minSessionTimeout": 2 * TICK_MS,
            "maxSessionTimeout": 60_000,
            "maxClientCnxns": 1_000,
            "admin.enableServer": "false",
            **members,
        }
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        settings.write_text(text, encoding="utf-8")
        plans.append(
            launcher.plan(
                name,
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                str(settings),
                host=at[name],
                ports={name: ports[name]},
                heap_mb=96,
                options=(*QUICK_COMPILER, "-Dzookeeper.jmx.log4j.disable=true"),
                stage=stage,
            )
        )
    return plans


def _peer(name: str) -> str:
    return f"{name}-peer"


def _election(name: str) -> str:
    return f"{name}-election"
