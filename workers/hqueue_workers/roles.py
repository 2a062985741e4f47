"""The roles of a process, which run beside each other until the process must end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import Protocol

from hqueue.rpc.accepting import raise_file_limit
from hqueue.runtime.memory import bound_arenas

__all__ = ["Role", "run_together", "run_until_signal"]


class Role(Protocol):
    """A part of a process: a worker or a hub."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until `stopping` is set; then end cleanly."""


async def run_together(roles: Sequence[Role], stopping: asyncio.Event) -> None:
    """Run roles beside each other until `stopping` is set, or until one of them ends: then
    `stopping` is set for the others, too.

    Raises:
        Exception: the first one by which a role ended.
    """
    running = [asyncio.ensure_future(role.run(stopping)) for role in roles]
    try:
        ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.set()
        await asyncio.wait(running)
    for each in (*ended, *running):
        each.result()


async def run_until_signal(roles: Sequence[Role]) -> None:
    """Run roles until SIGTERM, SIGHUP or SIGINT. A second Ctrl-C ends the process at once, like a
    kill. The process's limit of open files is raised to its hard limit.

    Raises:
        KeyboardInterrupt: SIGINT came, and the roles have ended.
        Exception: the first exception with which a role ended.
    """
    raise_file_limit()
    bound_arenas()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, _end_at_once)
        stopping.set()

    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` makes processes ignore it.
        loop.add_signal_handler(signal.SIGHUP, stopping.set)
    loop.add_signal_handler(signal.SIGINT, interrupt)
    await run_together(roles, stopping)
    if interrupted:
        raise KeyboardInterrupt


def _end_at_once(number: int, frame: object) -> None:
    os._exit(128 + number)
