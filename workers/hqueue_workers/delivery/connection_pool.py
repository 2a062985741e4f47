"""The connections to one subscriber, and the calls that go through them."""

from __future__ import annotations

import functools
import itertools
import socket
from collections.abc import Callable

from hqueue.metadata import Address
from hqueue.net.contexts import TlsContexts
from hqueue.net.refusals import RefusedError
from hqueue.rpc.async_connection import Accepts, AsyncConnection, UncallableError
from hqueue.rpc.calls import NoCallError
from hqueue.rpc.pool import AsyncConnectionPool
from hqueue_workers.delivery.wire import (
    REPLY_CONTAINERS_MAX,
    Call,
    Reply,
    ReplyError,
    call_head,
    call_tail,
    read_reply,
)

__all__ = ["Connection", "ConnectionPool", "NoAnswerError", "NotCalledError"]

RECEIVED_BYTES_MAX = 128 * 1024
"""Of a reply, until it is read."""
SEQID_MAX = 2**31 - 1

_seqids = itertools.count(1)


class NoAnswerError(Exception):
    """A subscriber did not answer a call; it may have got it, or not. The text says why."""


class NotCalledError(NoAnswerError):
    """A subscriber was not called: nobody knows its host's name, or it may not be called."""


class ConnectionPool(AsyncConnectionPool["Connection"]):
    """The connections to one subscriber: a few, which its partitions take turns to use.

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
        make = functools.partial(
            Connection,
            address,
            RECEIVED_BYTES_MAX,
            REPLY_CONTAINERS_MAX,
            may_send=may_send,
            may_reach=may_reach,
            tls=tls,
            accepts=accepts,
        )
        super().__init__(make, connections)


class Connection(AsyncConnection):
    """One connection, opened when it is needed. One call at a time."""

    async def call(self, call: Call, timeout_s: float) -> Reply:
        """Call the subscriber; its answer.

        Args:
            call: the messages.
            timeout_s: the bound on the call, once there is a connection.

        Raises:
            NotCalledError: its host's name is not known, its addresses may not be called, or the
                two sides do not accept each other.
            NoAnswerError: there was no answer in time, or none that could be understood.
        """
        seqid = next(_seqids) & SEQID_MAX
        data = b"".join((call_head(seqid, call.count), *call.parts, call_tail))
        try:
            return read_reply(await self.exchange(data, timeout_s), seqid, call.count)
        except UncallableError as exc:
            raise NotCalledError(f"{exc}: see callback_networks") from exc
        except (socket.gaierror, RefusedError) as exc:
            raise NotCalledError(str(exc)) from exc
        except (OSError, EOFError, NoCallError, ReplyError) as exc:
            raise NoAnswerError(str(exc) or type(exc).__name__) from exc
