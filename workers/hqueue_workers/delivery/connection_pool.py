"""The connections to one subscriber, and the calls that go through them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

from hqueue.metadata import Address
from hqueue.net.contexts import TlsContexts
from hqueue.net.refusals import RefusedError
from hqueue.rpc.async_connection import Accepts, AsyncConnection, UncallableError
from hqueue.rpc.calls import NoCallError
from hqueue.rpc.pool import AsyncConnectionPool
from hqueue_workers.delivery.call_turns import CallTurns
from hqueue_workers.delivery.wire import (
    REPLY_CONTAINERS_MAX,
    Call,
    Reply,
    ReplyError,
    call_head,
    call_tail,
    read_reply,
)

__all__ = ["Connection", "ConnectionPool", "LostCallError", "NoAnswerError", "NotCalledError"]

RECEIVED_BYTES_MAX = 128 * 1024
"""Of a reply, until it is read."""
SEQID_MAX = 2**31 - 1

_seqids = itertools.count(1)


class NoAnswerError(Exception):
    """A subscriber did not answer a call; it may have got it, or not. The text says why."""


class NotCalledError(NoAnswerError):
    """A subscriber was not called: nobody knows its host's name, or it may not be called."""


class LostCallError(NoAnswerError):
    """A subscriber got a call, and its process ended, or hung, before it answered: perhaps because
    of what is in the call.

    Args:
        text: why there was no answer.
        timed_out: whether its connection did not end.
    """

    def __init__(self, text: str, *, timed_out: bool = False) -> None:
        super().__init__(text)
        self.timed_out = timed_out


class ConnectionPool(AsyncConnectionPool["Connection"]):
    """The connections to one subscriber: a few, which its partitions take turns to use.

    A call that had no answer in time may hang still, and hold up later ones. So its connection is
    watched until the answer comes after all, or the process ends: other calls that have no answer
    meanwhile say nothing of their messages.

    Args:
        address: where it listens.
        may_send: asked right before each piece of a call is sent.
        connections: calls under way at a time.
        may_reach: whether an IP address of it may be connected to.
        tls: what TLS is spoken with; in clear if None.
        accepts: as `AsyncConnection` takes it.
    """

    def __init__(
        self,
        address: Address,
        may_send: Callable[[], bool],
        connections: int,
        may_reach: Callable[[str], bool] = lambda ip: True,
        *,
        tls: TlsContexts | None = None,
        accepts: Accepts = lambda certificate: None,
    ) -> None:
        self.address = address
        self._hanging: socket.socket | None = None
        """That of a call that had no answer in time."""
        self._turns = CallTurns()
        self._closed = False
        make = functools.partial(
            Connection,
            address,
            RECEIVED_BYTES_MAX,
            REPLY_CONTAINERS_MAX,
            may_send=may_send,
            may_reach=may_reach,
            tls=tls,
            accepts=accepts,
            on_late=self._watch,
            is_hanging=lambda: self.is_hanging,
        )
        super().__init__(make, connections)

    @property
    def is_hanging(self) -> bool:
        """Whether a call may hang still that had no answer in time."""
        return self._hanging is not None

    @contextlib.asynccontextmanager
    async def connection(
        self, wait_s: float | None = None, *, alone: bool = False
    ) -> AsyncIterator[Connection]:
        """A connection for the caller alone, as `AsyncConnectionPool.connection`.

        Args:
            wait_s: as there.
            alone: no other connection is in use meanwhile. It waits for those that are, and others
                wait for it.
        """
        async with self._turns.turn(alone=alone), super().connection(wait_s) as connection:
            yield connection

    def close(self) -> None:
        """Like `AsyncConnectionPool`."""
        self._closed = True
        self._unwatch()
        super().close()

    def _watch(self, left: socket.socket) -> None:
        if self._hanging is not None or self._closed:
            left.close()
            return
        self._hanging = left
        asyncio.get_running_loop().add_reader(left, self._unwatch)

    def _unwatch(self) -> None:
        """The answer came after all, or the process ended, or nobody asks any more."""
        left, self._hanging = self._hanging, None
        if left is not None:
            asyncio.get_running_loop().remove_reader(left)
            left.close()


class Connection(AsyncConnection):
    """One connection, opened when it is needed. One call at a time.

    Args:
        is_hanging: whether an earlier call to the subscriber may hang still.
        given: as `AsyncConnection` takes it.
    """

    def __init__(self, *given: Any, is_hanging: Callable[[], bool], **options: Any) -> None:
        super().__init__(*given, **options)
        self._is_hanging = is_hanging

    async def call(self, call: Call, timeout_s: float) -> Reply:
        """Call the subscriber; its answer.

        Args:
            call: the messages.
            timeout_s: the bound on the call, once there is a connection.

        Raises:
            NotCalledError: its host's name is not known, its addresses may not be called, or the
                two sides do not accept each other.
            LostCallError: it got the call, and its connection ended, or there was no answer in
                time; and no earlier call hung when this one began.
            NoAnswerError: there was no answer in time, or none that could be understood.
        """
        seqid = next(_seqids) & SEQID_MAX
        data = b"".join((call_head(seqid, call.count), *call.parts, call_tail))
        was_hanging = self._is_hanging()
        if self.is_open and not self.is_quiet():
            self.close()  # It ended since the last call: this one must not get lost with it.
        try:
            return read_reply(await self.exchange(data, timeout_s), seqid, call.count)
        except UncallableError as exc:
            raise NotCalledError(f"{exc}: see callback_networks") from exc
        except (socket.gaierror, RefusedError) as exc:
            raise NotCalledError(str(exc)) from exc
        except (NoCallError, ReplyError) as exc:
            raise NoAnswerError(str(exc) or type(exc).__name__) from exc
        except (OSError, EOFError) as exc:
            text = str(exc) or type(exc).__name__
            if not self.has_sent or was_hanging:
                raise NoAnswerError(text) from exc
            raise LostCallError(text, timed_out=isinstance(exc, TimeoutError)) from exc
