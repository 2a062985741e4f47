"""Caller: makes the calls of subscribers, for push and for hubs, and does what follows."""

from __future__ import annotations

from typing import Protocol

from hqueue import DeadLetter, Queue
from hqueue.metadata import DeliveryOptions
from hqueue_workers.delivery.connection_pool import ConnectionPool, NoAnswerError
from hqueue_workers.delivery.tries import UNTRIED, Decision, Tries
from hqueue_workers.delivery.wire import Call, decode_messages
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.runtime import Runtime

__all__ = ["Caller"]


class Receiver(Protocol):
    """A subscriber, as calls are made to it one after another."""

    @property
    def name(self) -> str:
        """Whose the dead letters are."""

    @property
    def tries(self) -> Tries:
        """Of the call that comes next."""

    async def take(self) -> Call | None:
        """The next call; None if there is nothing now.

        Raises:
            HQueueError: the messages can't be had now.
        """

    def called(self, call: Call, decision: Decision, error: NoAnswerError | None) -> bool:
        """Keep the tries, and note what came of a call, the error if there was no answer; whether
        it counts still.
        """

    async def passed(self, call: Call, decision: Decision) -> None:
        """Go on behind messages that are done, or lie with the dead letters.

        Args:
            call: the part of the call that has them.
            decision: which of them are dead letters, and the tries to keep.
        """


class Caller:
    """Delivers to subscribers of one queue: calls them, and does what follows from the answers, as
    `Tries` decides.

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

    async def deliver(self, pool: ConnectionPool, to: Receiver) -> float:
        """Make one call, and do what follows; the pause before the next, in milliseconds. The
        messages are taken when there is a connection for them: one that waits for that holds
        nothing.

        Raises:
            HQueueError: the messages can't be had now; or they are dead letters that could not be
                written, or it is not known: the caller must make the call again.
        """
        call: Call | None = None
        tries, error = UNTRIED, None
        try:
            async with pool.connection() as connection:
                call = await to.take()
                if call is None:
                    return 0.0
                tries, passed = to.tries, to.tries.passed()
                decision = Decision(passed, done=0, after=passed)
                if call.count:
                    reply = await connection.call(call, self.options.timeout_ms / 1e3)
                    decision = tries.answered(reply, call, self.options)
        except NoAnswerError as exc:
            assert call is not None
            error, decision = exc, tries.unanswered(call, self.options)
        if not to.called(call, decision, error):
            return 0.0
        if decision.dead:
            await self._bury(to.name, call, decision)
        if decision.done is not None:
            await to.passed(call.upto(decision.done), decision)
        return decision.pause_ms

    async def _bury(self, subscriber: str, call: Call, decision: Decision) -> None:
        letters = [
            DeadLetter(message, subscriber, decision.dead[index], decision.tries.attempts)
            for index, message in enumerate(decode_messages(b"".join(call.parts)))
            if index in decision.dead
        ]
        await self._lease.wait()
        await self._runtime.read(lambda: self._queue.dead_letters.put(letters))
