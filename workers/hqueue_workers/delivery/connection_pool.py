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
"""The largest reply that is read."""
SEQID_MAX = 2**31 - 1

_seqids = itertools.count(1)


class NoAnswerError(Exception):
    """A subscriber did not answer a call. It may have got the call, or not. The text says why."""


class NotCalledError(NoAnswerError):
    """A subscriber was not called: its host name can't be resolved, or it may not be called."""


class LostCallError(NoAnswerError):
    """A subscriber got a call, and its process ended or hung before it answered, perhaps because
    of a message in the call.

    Args:
        text: why there was no answer.
        timed_out: whether the call timed out, and its connection did not end.
    """

    def __init__(self, text: str, *, timed_out: bool = False) -> None:
        super().__init__(text)
        self.timed_out = timed_out


class ConnectionPool(AsyncConnectionPool["Connection"]):
    """The connections to one subscriber: a few, which its partitions share.

    A call that timed out may still hang, and hold up later calls. So the pool watches its
    connection until the answer comes after all, or the process ends. Other calls without an answer
    in this time say nothing about their messages.

    Args:
        address: where the subscriber listens.
        may_send: asked right before each piece of a call is sent.
        connections: the most calls under way at a time.
        may_reach: whether a connection to this IP address is allowed.
        tls: the TLS contexts; connections are in clear if None.
        accepts: as for `AsyncConnection`.
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
        """The connection of a call that timed out."""
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
        """Whether a call that timed out may still hang."""
        return self._hanging is not None

    @contextlib.asynccontextmanager
    async def connection(
        self, wait_s: float | None = None, *, alone: bool = False
    ) -> AsyncIterator[Connection]:
        """Give the caller a connection of its own, like `AsyncConnectionPool.connection`.

        Args:
            wait_s: as there.
            alone: whether no other connection may be in use meanwhile. The caller waits for those
                that are, and later callers wait for it.
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
        """Stop watching: the answer came after all, the process ended, or the pool closes."""
        left, self._hanging = self._hanging, None
        if left is not None:
            asyncio.get_running_loop().remove_reader(left)
            left.close()


class Connection(AsyncConnection):
    """One connection, opened when it is needed. One call at a time.

    Args:
        is_hanging: whether an earlier call to the subscriber may still hang.
        given: as for `AsyncConnection`.
    """

    def __init__(self, *given: Any, is_hanging: Callable[[], bool], **options: Any) -> None:
        super().__init__(*given, **options)
        self._is_hanging = is_hanging

    async def call(self, call: Call, timeout_s: float) -> Reply:
        """Call the subscriber, and return its answer.

        Args:
            call: the messages.
            timeout_s: the bound on the call, once there is a connection.

        Raises:
            NotCalledError: its host name can't be resolved, its addresses may not be called, or one
                of the two sides does not accept the other.
            LostCallError: it got the call, and its connection ended or the call timed out; and no
                earlier call hung when this one began.
            NoAnswerError: there was no answer in time, or the answer could not be understood.
        """
        seqid = next(_seqids) & SEQID_MAX
        data = b"".join((call_head(seqid, call.count), *call.parts, call_tail))
        was_hanging = self._is_hanging()
        if self.is_open and not self.is_quiet():
            # The subscriber closed it since the last call: this call must not get lost with it.
            self.close()
        try:
            return read_reply(await self.exchange(data, timeout_s), seqid, call.count)
        except UncallableError as exc:
            raise NotCalledError(f"{exc}: see the hub's setting callback_networks") from exc
        except (socket.gaierror, RefusedError) as exc:
            raise NotCalledError(str(exc)) from exc
        except (NoCallError, ReplyError) as exc:
            raise NoAnswerError(str(exc) or type(exc).__name__) from exc
        except (OSError, EOFError) as exc:
            text = str(exc) or type(exc).__name__
            if not self.has_sent or was_hanging:
                raise NoAnswerError(text) from exc
            raise LostCallError(text, timed_out=isinstance(exc, TimeoutError)) from exc
