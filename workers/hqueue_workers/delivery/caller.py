"""Caller: makes a call of a subscriber, for push and for hubs, and puts dead letters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from hqueue import DeadLetter, Queue
from hqueue.metadata import DeliveryOptions
from hqueue.push.listener import Status
from hqueue_workers.delivery.connection_pool import ConnectionPool, NoAnswerError
from hqueue_workers.delivery.tries import Decision, Tries
from hqueue_workers.delivery.wire import Call, decode_messages
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.runtime import Runtime

__all__ = ["Called", "Caller"]


class Called(NamedTuple):
    """A call that was made, or need not be: one without messages is done.

    Args:
        call: the call.
        decision: what follows.
        error: why there was no answer; None if there was one.
    """

    call: Call
    decision: Decision
    error: NoAnswerError | None = None


class Caller:
    """Calls subscribers of one queue. What follows from an answer is decided by `Tries`.

    Args:
        queue: the queue.
        options: how the subscribers want to be delivered to.
        lease: whether this process may act.
        runtime: what it runs on.
    """

    def __init__(
        self, queue: Queue, options: DeliveryOptions, lease: Lease, runtime: Runtime
    ) -> None:
        self.options = options
        self._queue = queue
        self._lease = lease
        self._runtime = runtime

    async def call(
        self, pool: ConnectionPool, take: Callable[[], Awaitable[Call | None]], tries: Tries
    ) -> Called | None:
        """Make one call. The messages are taken when there is a connection for them: one that
        waits for that holds nothing.

        Args:
            pool: the connections to the subscriber.
            take: gives the next call; None if there is nothing now.
            tries: of the call, before.

        Returns:
            None if there was nothing.

        Raises:
            HQueueError: the messages can't be had now.
        """
        call: Call | None = None
        try:
            async with pool.connection() as connection:
                call = await take()
                if call is None:
                    return None
                if not call.count:
                    return Called(call, Decision(tries.passed(), Status.DONE))
                reply = await connection.call(call, self.options.timeout_ms / 1e3)
        except NoAnswerError as exc:
            assert call is not None
            return Called(call, tries.unanswered(call.end, self.options), exc)
        return Called(call, tries.answered(reply, call.end, self.options))

    async def bury(self, subscriber: str, called: Called) -> None:
        """Put the messages of a call to the dead letters, as was decided.

        Raises:
            HQueueError: they could not be written, or it is not known. The call is made again.
        """
        tries, reason = called.decision.tries, called.decision.dead
        assert reason is not None
        letters = [
            DeadLetter(message, subscriber, reason, tries.attempts)
            for message in decode_messages(b"".join(called.call.parts))
        ]
        await self._lease.wait()
        await self._runtime.read(lambda: self._queue.dead_letters.put(letters))
