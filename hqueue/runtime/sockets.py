"""Opening sockets from an event loop, without waiting in it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from typing import Any

from hqueue.errors import HQueueError
from hqueue.runtime.loop import in_thread
from hqueue.settings.addresses import Address

__all__ = ["Place", "connect", "resolve"]

Place = tuple[Any, ...]
"""An address of a server, as `socket.getaddrinfo` has it."""


async def resolve(address: Address) -> list[Place]:
    """The addresses of a server. A thread looks up its name, if it is none that stands for itself.

    Raises:
        OSError: it has none, or no thread is free; `socket.gaierror` if its name is not known.
    """
    host, port = address
    with contextlib.suppress(socket.gaierror):
        flags = socket.AI_NUMERICHOST
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
    try:
        return await in_thread(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    except HQueueError as exc:
        raise ConnectionError(f"its name is not looked up: {exc}") from exc


async def connect(places: Iterable[Place], timeout_s: float | None = None) -> socket.socket:
    """A socket to the first address that takes one. It doesn't block, and sends at once what it is
    given. Cancelled, it leaves none behind.

    Args:
        places: the addresses.
        timeout_s: the bound for each.

    Raises:
        OSError: none takes one.
    """
    loop = asyncio.get_running_loop()
    failure: OSError = ConnectionError("its name has no address")
    for family, kind, protocol, _, place in places:
        try:
            opened = socket.socket(family, kind, protocol)
        except OSError as exc:  # This machine may not know the family.
            failure = exc
            continue
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.wait_for(loop.sock_connect(opened, place), timeout_s)
        except asyncio.TimeoutError:
            failure = TimeoutError("it can't be reached")
        except OSError as exc:
            failure = exc
        except BaseException:
            opened.close()
            raise
        else:
            return opened
        opened.close()
    raise failure
