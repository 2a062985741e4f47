"""A worker process: ``python -m tests.faults.worker SPECIFICATION``."""

from __future__ import annotations

import asyncio
import signal
import sys

import hqueue
from hqueue import HQueueError
from hqueue_workers import Worker, WorkerSettings

from .specification import Specification

__all__ = ["STYLES"]

STYLES = ("first", "second")
"""Two, each beside another region server."""

_HOSTS = {"first": "127.0.0.1", "second": "127.0.0.2"}
PAUSE_S = 0.5


async def _work(specification: Specification) -> None:
    settings = WorkerSettings(
        name=specification.name,
        host="127.0.0.1",
        region_host=_HOSTS[specification.style],
        metrics_port=specification.metrics_port,
    )
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)

    async def stop_at_the_end() -> None:
        while not specification.delivered():
            await asyncio.sleep(PAUSE_S)
        stopping.set()

    with hqueue.connect(specification.client_settings()) as client:
        ending = asyncio.ensure_future(stop_at_the_end())
        try:
            await Worker(client, settings).run(stopping)
        finally:
            ending.cancel()


def _run(specification: Specification) -> None:
    """Work, as a service manager lets it: started again when it ended with an error."""
    while True:
        try:
            asyncio.run(_work(specification))
            return
        except HQueueError as exc:
            print(exc, file=sys.stderr)


if __name__ == "__main__":
    _run(Specification.begin(sys.argv[1]))
