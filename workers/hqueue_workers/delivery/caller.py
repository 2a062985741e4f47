"""Caller: makes the calls of subscribers, for push and for hubs, and does what follows."""

from __future__ import annotations

from typing import Protocol

from hqueue import DeadLetter, MessageID, Queue
from hqueue.metadata import DeliveryOptions
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue.runtime.logs import Log
from hqueue_workers.delivery.connection_pool import ConnectionPool, LostCallError, NoAnswerError
from hqueue_workers.delivery.suspects import cleared, unanswered
from hqueue_workers.delivery.tries import UNTRIED, Decision, Tries
from hqueue_workers.delivery.wire import Call, decode_messages
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.runtime import Runtime

__all__ = ["Caller"]

logger = Log(__name__)

HOLD_MS = 1_000.0
"""The pause before it is asked again whether suspected messages may be sent."""


class Receiver(Protocol):
    """A subscriber, as calls are made to it one after another."""

    @property
    def name(self) -> str:
        """Whose the dead letters are."""

    @property
    def tries(self) -> Tries:
        """Of the call that comes next."""

    @property
    def unanswered_calls_max(self) -> int:
        """As in `DeliveryOptions`."""

    suspected: UnansweredCalls | None
    """The calls that it got and did not answer: one of their messages may be the cause."""

    async def is_connected(self) -> bool:
        """Whether it is there still, as far as is known. One that stops in order says so before it
        ends its connections.
        """

    async def is_free(self) -> bool:
        """Whether messages that are suspected may be sent now: no others that are, anywhere, may
        end the process meanwhile.
        """

    async def keep_suspected(self) -> None:
        """Store what is suspected."""

    def halved(self) -> None:
        """Note that the next call has half as many messages, because one of them is suspected."""

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
        tries, error, verdict = UNTRIED, None, None
        is_suspected = to.suspected is not None
        if is_suspected and not await to.is_free():
            return HOLD_MS
        try:
            async with pool.connection(alone=is_suspected) as connection:
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
            if isinstance(exc, LostCallError) and await self._counts(exc, to):
                verdict = unanswered(to.suspected, call, to.unanswered_calls_max)
            error, decision = exc, tries.unanswered(call, self.options, verdict)
        if not to.called(call, decision, error):
            return 0.0
        if decision.dead:
            await self._bury(to.name, call, decision)
        if decision.done is not None:
            part = call.upto(decision.done)
            if error is not None:
                text = (
                    "message %s becomes a dead letter of %s, which gave no answer whenever it came"
                )
                logger.warning(text, MessageID.from_int(part.first), to.name)
            to.suspected = None if error is not None else cleared(to.suspected, part.end)
            await to.passed(part, decision)
        elif verdict is not None and verdict.suspected != to.suspected:
            to.suspected = verdict.suspected
            if verdict.messages < call.count:
                to.halved()
            await to.keep_suspected()
        return decision.pause_ms

    async def _counts(self, lost: LostCallError, to: Receiver) -> bool:
        """Whether a call that was lost says anything of its messages: neither this process stood
        still, nor did the subscriber stop in order.
        """
        return self._lease.holds and (lost.timed_out or await to.is_connected())

    async def _bury(self, subscriber: str, call: Call, decision: Decision) -> None:
        letters = [
            DeadLetter(message, subscriber, decision.dead[index], decision.tries.attempts)
            for index, message in enumerate(decode_messages(b"".join(call.parts)))
            if index in decision.dead
        ]
        await self._lease.wait()
        await self._runtime.read(lambda: self._queue.dead_letters.put(letters))
