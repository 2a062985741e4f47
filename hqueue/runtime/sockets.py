"""Opening sockets: by a thread that waits, or from an event loop without waiting in it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import socket
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from hqueue.errors import HQueueError
from hqueue.runtime.causes import causes
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import in_thread
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.steps import Wait
from hqueue.settings.addresses import Address

__all__ = [
    "NO_DESCRIPTORS",
    "AddressInfo",
    "are_descriptors_left",
    "connect",
    "lacks_descriptors",
    "open_connection",
    "opened_within",
    "resolve",
    "within",
]

logger = Log(__name__)

Result = TypeVar("Result")

NO_DESCRIPTORS = (
    "this process, or its machine, has no file descriptors left: close files and connections, or "
    "let it have more (ulimit -n)"
)
_FAULT = "descriptors"
_NONE_LEFT = (errno.EMFILE, errno.ENFILE)

_faults = FaultLog(logger)

AddressInfo = tuple[Any, ...]
"""An address of a server, as `socket.getaddrinfo` has it."""


class NoDescriptorsError(OSError):
    """There are no file descriptors left for a socket."""


def open_connection(address: Address | tuple[str, int], timeout_s: float) -> socket.socket:
    """A socket that is connected, opened in the caller's thread.

    Raises:
        OSError: it can't be opened within the bound.
    """
    try:
        opened = socket.create_connection(address, timeout_s)
    except OSError as exc:
        if not is_interruption(exc):
            _check(exc)
        raise
    _faults.over(_FAULT, "there are file descriptors for connections again")
    return opened


def lacks_descriptors(error: BaseException | None) -> bool:
    """Whether an error, or what it comes from, means that no descriptors are left."""
    return any(isinstance(each, NoDescriptorsError) for each in causes(error))


def are_descriptors_left() -> bool:
    """Whether a further socket can be opened now."""
    try:
        socket.socket().close()
    except OSError as exc:
        return exc.errno not in _NONE_LEFT
    return True


def _check(error: OSError) -> None:
    """See why a socket could not be opened. A look-up of a name has other words for it that there
    are no descriptors for its own files.

    Raises:
        NoDescriptorsError: there are none left.
    """
    hidden = isinstance(error, socket.gaierror) and not are_descriptors_left()
    if hidden or error.errno in _NONE_LEFT:
        _faults.met(_FAULT, "connections can't be opened: %s", NO_DESCRIPTORS)
        raise NoDescriptorsError(errno.EMFILE, NO_DESCRIPTORS) from error


async def within(work: Coroutine[Any, Any, Result], timeout_s: float | None) -> Result:
    """What comes of work within a bound. The work has ended when this returns. Unlike
    `asyncio.wait_for` before Python 3.12 it never swallows a cancellation.

    Raises:
        asyncio.TimeoutError: the work was not done in time, and is cancelled.
        Exception: as the work.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=timeout_s)
        if not task.done():
            raise asyncio.TimeoutError
    except BaseException:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise
    return task.result()


class Closable(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closable)


async def opened_within(opening: Coroutine[Any, Any, Opened], timeout_s: float) -> Opened:
    """The socket, or what has one, that is opened within a bound. Cancelled, it leaves none behind.

    Raises:
        OSError: it is not opened in time, or can't be.
    """
    task = asyncio.get_running_loop().create_task(opening)
    try:
        await asyncio.wait([task], timeout=timeout_s)
        if not task.done():
            raise TimeoutError("timed out")
    except BaseException:
        task.cancel()
        task.add_done_callback(_drop)
        raise
    return task.result()


def _drop(opening: asyncio.Task[Any]) -> None:
    """Close what was opened, though nobody waits for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def looking_up(host: str, function: Callable[[], object]) -> Wait:
    """Asks for a call that looks up the name of a host, which may take long: in a loop a thread
    makes it, if the host is none that stands for itself.
    """
    return Wait(function, functools.partial(_looked_up, host, function))


async def _looked_up(host: str, function: Callable[[], object]) -> object:
    with contextlib.suppress(socket.gaierror):
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
        return function()
    return await in_thread(function)


async def resolve(address: Address) -> list[AddressInfo]:
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
    except OSError as exc:
        _check(exc)
        raise
    except HQueueError as exc:
        raise ConnectionError(f"its name can't be resolved: {exc}") from exc


async def connect(resolved: Iterable[AddressInfo], timeout_s: float | None = None) -> socket.socket:
    """A socket to the first address that takes one. It doesn't block, and sends at once what it is
    given. Cancelled, it leaves none behind.

    Args:
        resolved: the addresses, as `resolve` gave them.
        timeout_s: the bound for each.

    Raises:
        OSError: none takes one.
    """
    loop = asyncio.get_running_loop()
    failure: OSError = ConnectionError("the host's name has no address")
    for family, kind, protocol, _, sockaddr in resolved:
        try:
            opened = socket.socket(family, kind, protocol)
        except OSError as exc:  # This machine may not know the family.
            _check(exc)
            failure = exc
            continue
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await within(loop.sock_connect(opened, sockaddr), timeout_s)
        except asyncio.TimeoutError:
            failure = TimeoutError("the host can't be reached")
        except OSError as exc:
            failure = exc
        except BaseException:
            opened.close()
            raise
        else:
            _faults.over(_FAULT, "there are file descriptors for connections again")
            return opened
        opened.close()
    raise failure
