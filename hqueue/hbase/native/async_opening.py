"""Opening a socket to one of HBase's servers from an event loop: as `hqueue.hbase.native.opening`
does, without a thread that waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from hqueue.errors import HQueueError
from hqueue.hbase.native.opening import greeting, set_options
from hqueue.runtime.loop import in_thread
from hqueue.settings.addresses import Address

__all__ = ["AsyncOpenSocket", "open_socket_async"]

AsyncOpenSocket = Callable[[Address, str, float], Awaitable[socket.socket]]
"""Opens a socket, which doesn't block, as `hqueue.hbase.native.opening.OpenSocket` does."""


async def open_socket_async(address: Address, service: str, timeout_s: float) -> socket.socket:
    """Connect, and say to which service. A thread looks up a name, if it is none that stands for
    itself. Cancelled, it leaves no socket behind.

    Raises:
        OSError: not within the bound.
    """
    opening = asyncio.get_running_loop().create_task(_open(address, service))
    try:
        await asyncio.wait([opening], timeout=timeout_s)
        if not opening.done():
            raise TimeoutError("timed out")
    except BaseException:
        opening.cancel()
        opening.add_done_callback(_drop)
        raise
    return opening.result()


def _drop(opening: asyncio.Task[socket.socket]) -> None:
    """Close what was opened, though nobody waits for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


async def _open(address: Address, service: str) -> socket.socket:
    loop = asyncio.get_running_loop()
    failure: OSError = ConnectionError("its name has no address")
    for family, kind, protocol, _, place in await _resolve(address):
        try:
            opened = socket.socket(family, kind, protocol)
        except OSError as exc:  # This machine may not know the family.
            failure = exc
            continue
        with contextlib.ExitStack() as stack:
            stack.callback(opened.close)
            opened.setblocking(False)
            try:
                await loop.sock_connect(opened, place)
                set_options(opened)
                await loop.sock_sendall(opened, greeting(service))
            except OSError as exc:
                failure = exc
                continue
            stack.pop_all()
            return opened
    raise failure


async def _resolve(address: Address) -> list[Any]:
    host, port = address
    with contextlib.suppress(socket.gaierror):
        flags = socket.AI_NUMERICHOST
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    try:
        return await in_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    except HQueueError as exc:
        raise ConnectionError(f"its name is not looked up: {exc}") from exc
