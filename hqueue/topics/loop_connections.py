"""Connections to hubs, kept for the next call, of callers in event loops."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from hqueue.net.contexts import TlsContexts
from hqueue.rpc.async_connection import AsyncConnection
from hqueue.rpc.calls import NoCallError
from hqueue.rpc.connection import ThriftError
from hqueue.rpc.messages import decode_reply, encode_call
from hqueue.rpc.pool import AllInUseError, AsyncConnectionPool, NotConnectedError
from hqueue.runtime.interrupts import is_interruption
from hqueue.runtime.loop import HERE_BYTES, computed, is_much
from hqueue.runtime.memory import uncollected
from hqueue.runtime.per_loop import PerLoop
from hqueue.settings.addresses import Address
from hqueue.settings.limits import ANSWER_BYTES_MAX, BATCH_MESSAGES_MAX, CALL_HEADERS_MAX
from hqueue.topics.exchanges import Ask, Exchange, Watch
from hqueue.topics.settings import HubClientSettings

__all__ = ["LoopHubConnections"]

REPLY_CONTAINERS_MAX = 1 + 3 * BATCH_MESSAGES_MAX + CALL_HEADERS_MAX
"""Of a reply. The largest is a list of messages, each with an ID and a list of headers."""
RECEIVE_BYTES = 64 * 1024
ASKED_BYTES_MAX = 64 * 1024

CALLS_MAX = 128
"""Calls of a hub at a time, in each loop. Each uses a connection; further ones wait."""

_Pools = dict[Address, AsyncConnectionPool[AsyncConnection]]


class LoopHubConnections:
    """Connections by hub, for each event loop its own. Promises what `HubConnections` does, to
    coroutines: no thread waits for a call.

    A caller may be cancelled wherever it waits. Its connection is closed then, and the outcome of a
    call that it had sent is unknown.

    Args:
        service, declared, settings, tls: see `HubConnections`.
    """

    def __init__(
        self,
        service: Any,
        declared: tuple[type[BaseException], ...],
        settings: HubClientSettings,
        tls: TlsContexts | None,
    ) -> None:
        self._tls = tls
        self._service = service
        self._declared = declared
        self._kept_max = settings.connections_max
        self._timeout_ms = settings.connect_timeout_ms
        self._closed = False
        self._pools: PerLoop[_Pools] = PerLoop(dict, _close, _abandon)

    async def exchange(self, call: Exchange) -> Any:
        """Make a call. As `HubConnections.exchange`."""
        method = call.method
        encode = partial(encode_call, self._service, method.name, *method.arguments)
        sent = await computed(uncollected(encode)) if _is_much(method.messages) else encode()
        try:
            reply = await self._exchange(call, sent)
        except Exception as exc:
            if not is_interruption(exc) and not isinstance(exc.__cause__, AllInUseError):
                self._drop(call.address)
            raise
        decode = partial(decode_reply, self._service, method.name, reply)
        try:
            return await computed(uncollected(decode)) if len(reply) > HERE_BYTES else decode()
        except self._declared:
            raise
        except Exception as exc:
            if not is_interruption(exc):
                self._drop(call.address)
            raise

    async def ask(self, asked: Ask) -> bool:
        """Like `HubConnections.ask`."""
        connection = AsyncConnection(asked.hub, ASKED_BYTES_MAX, 1, tls=self._tls)
        bound_s = asked.bound_ms / 1e3
        try:
            await connection.open(bound_s)
            await connection.call_method(self._service, "apiAddress", timeout_s=bound_s)
        except (OSError, *ThriftError, EOFError, ValueError, NoCallError) as exc:
            if is_interruption(exc):
                raise
            return not isinstance(exc, TimeoutError)
        finally:
            connection.close()
        return True

    def close(self) -> None:
        """Keep none any more. From any thread."""
        self._closed = True
        self._pools.close()

    def _drop(self, address: Address) -> None:
        pool = self._pools.here().pop(address, None)
        if pool is not None:
            pool.close()

    async def _exchange(self, call: Exchange, sent: bytes) -> bytes:
        bound_s = max(1.0, call.deadline.remaining_ms) / 1e3
        here, address = self._pools.here(), call.address
        pool = here.get(address)
        if pool is None:
            pool = here[address] = self._pool_of(address)
        if self._closed:
            pool.close()
        try:
            async with pool.connection(bound_s) as connection:
                bound_s = max(1.0, call.deadline.remaining_ms) / 1e3
                try:
                    await connection.open(min(bound_s, self._timeout_ms / 1e3))
                except (OSError, UnicodeError) as exc:
                    if is_interruption(exc):
                        raise
                    raise NotConnectedError("the connection can't be opened") from exc
                return await _watched(connection, sent, bound_s, call.watch)
        except AllInUseError as exc:
            raise NotConnectedError("no connection became free") from exc

    def _pool_of(self, address: Address) -> AsyncConnectionPool[AsyncConnection]:
        return AsyncConnectionPool(
            lambda: AsyncConnection(
                address,
                ANSWER_BYTES_MAX,
                REPLY_CONTAINERS_MAX,
                receive_bytes=RECEIVE_BYTES,
                tls=self._tls,
            ),
            CALLS_MAX,
            self._kept_max,
            AsyncConnection.is_quiet,  # Where the hub has hung up, what is sent would be lost.
        )


async def _watched(
    connection: AsyncConnection, sent: bytes, bound_s: float, watch: Watch | None
) -> bytes:
    """Exchange a call for its reply; meanwhile check whether the server answers at all."""
    if watch is None:
        return await connection.exchange(sent, bound_s)
    loop, checking = asyncio.get_running_loop(), list[asyncio.Task[None]]()
    begin = partial(_check, connection, watch)
    timer = loop.call_later(
        watch.silence_ms / 1e3, lambda: checking.append(loop.create_task(begin()))
    )
    try:
        return await connection.exchange(sent, bound_s)
    finally:
        timer.cancel()
        for task in checking:
            task.cancel()
            await asyncio.wait([task])


async def _check(connection: AsyncConnection, watch: Watch) -> None:
    silence_s = watch.silence_ms / 1e3
    try:
        while True:
            await watch.check().in_loop()
            silence_s *= 2
            await asyncio.sleep(silence_s)
    except Exception as exc:
        if is_interruption(exc):
            raise
        connection.fail(exc)


def _is_much(messages: Any) -> bool:
    return is_much(len(messages), lambda: sum(len(each.value) for each in messages))


def _close(pools: _Pools) -> None:
    for pool in pools.values():
        pool.close()


def _abandon(pools: _Pools) -> None:
    for pool in pools.values():
        pool.abandon(AsyncConnection.abandon)
