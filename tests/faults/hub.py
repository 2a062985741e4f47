"""A hub process: ``python -m tests.faults.hub SPECIFICATION``."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from unittest import mock

import hqueue
from hqueue import Address, Client, HQueueError
from hqueue.zookeeper import ZooKeeperStore
from hqueue_workers.hub.hub import Hub
from hqueue_workers.hub.owning import balance
from hqueue_workers.hub.settings import HubSettings
from tests.support.zookeeper_faults import expire

from .specification import Specification

__all__ = ["STYLES", "expiring_path"]

STYLES = ("left", "right", "middle")
"""Three, so that two share what a third one leaves."""

PAUSE_S = 0.5
BALANCE_MS = 1_000
STAY_MS = 10_000.0
"""A topic stays for so long, not for a minute: hubs shed all the time."""
SESSION_MS = 5_000


def expiring_path(folder: Path, name: str) -> Path:
    """Where this is, a hub lets its session expire, and takes it away when that is done."""
    return folder / f"{name}.expiring"


async def _serve(specification: Specification) -> None:
    at = Address.parse(specification.hubs[STYLES.index(specification.style)])
    settings = HubSettings(
        host=at.host,
        port=at.port,
        metrics_port=specification.metrics_port,
        balance_ms=BALANCE_MS,
        session_ms=SESSION_MS,
        drain_ms=2_000,
    )
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)

    async def look_after(client: Client) -> None:
        expiring = expiring_path(specification.folder, specification.name)
        while not specification.delivered():
            await asyncio.sleep(PAUSE_S)
            if expiring.exists():
                await asyncio.to_thread(_lose_session, client)
                expiring.unlink(missing_ok=True)

    with hqueue.connect(specification.client_settings()) as client:
        looking_after = asyncio.ensure_future(look_after(client))
        looking_after.add_done_callback(lambda _: stopping.set())
        try:
            await Hub(client, [specification.topics_queue], settings).run(stopping)
        finally:
            looking_after.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking_after  # An error of its own ends this process, and is seen.


def _lose_session(client: Client) -> None:
    store = client.coordination.store
    assert isinstance(store, ZooKeeperStore)
    with contextlib.suppress(AssertionError):  # ZooKeeper is away: the nemesis gives it up.
        expire(store)


async def _run(specification: Specification) -> None:
    """Serve, as a service manager lets it: started again when it ended with an error."""
    while True:
        try:
            with mock.patch.object(balance, "STAY_MS", STAY_MS):
                await _serve(specification)
        except HQueueError as exc:
            print(repr(exc), file=sys.stderr)
            await asyncio.sleep(PAUSE_S)
        else:
            return


if __name__ == "__main__":
    asyncio.run(_run(Specification.begin(sys.argv[1])))
