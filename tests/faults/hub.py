"""A hub process: ``python -m tests.faults.hub SPECIFICATION``."""

from __future__ import annotations

import asyncio
import sys

import hqueue
from hqueue import Address, HQueueError
from hqueue_workers.hub.hub import Hub
from hqueue_workers.hub.settings import HubSettings

from .specification import Specification

__all__ = ["STYLES"]

STYLES = ("left", "right", "middle")
"""Three, so that two share what a third one leaves."""

PAUSE_S = 0.5
BALANCE_MS = 1_000
SESSION_MS = 5_000


async def _serve(specification: Specification) -> None:
    at = Address.parse(specification.hubs[STYLES.index(specification.style)])
    settings = HubSettings(
        host=at.host,
        port=at.port,
        metrics_port=0,
        balance_ms=BALANCE_MS,
        session_ms=SESSION_MS,
        drain_ms=2_000,
    )
    stopping = asyncio.Event()

    async def stop_at_the_end() -> None:
        while not specification.delivered():
            await asyncio.sleep(PAUSE_S)
        stopping.set()

    with hqueue.connect(specification.client_settings()) as client:
        ending = asyncio.ensure_future(stop_at_the_end())
        try:
            await Hub(client, [specification.topics_queue], settings).run(stopping)
        finally:
            ending.cancel()


async def _run(specification: Specification) -> None:
    """Serve, as a service manager lets it: started again when it ended with an error."""
    while True:
        try:
            await _serve(specification)
        except HQueueError as exc:
            print(repr(exc), file=sys.stderr)
            await asyncio.sleep(PAUSE_S)
        else:
            return


if __name__ == "__main__":
    asyncio.run(_run(Specification.begin(sys.argv[1])))
