"""Caller: calls subscribers, for push and for hubs, and acts on their answers."""

from __future__ import annotations

from typing import Protocol

from hqueue import DeadLetter, MessageID, Queue
from hqueue.metadata import DeliveryOptions
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue.runtime.logs import Log
from hqueue.watching.observers import OBSERVERS, delivering
from hqueue_workers.delivery.connection_pool import ConnectionPool, LostCallError, NoAnswerError
from hqueue_workers.delivery.suspects import cleared, unanswered
from hqueue_workers.delivery.tries import UNTRIED, Decision, Tries
from hqueue_workers.delivery.wire import Call, decode_messages
from hqueue_workers.node.lease import Lease
from hqueue_workers.node.runtime import Runtime

__all__ = ["Caller"]

logger = Log(__name__)

HOLD_MS = 1_000.0
"""The pause before the caller checks again whether it may send suspected messages."""


class Receiver(Protocol):
    """A subscriber that `Caller` calls, one call at a time."""

    @property
    def name(self) -> str:
        """The subscriber's name, under which its dead letters are stored."""

    @property
    def tries(self) -> Tries:
        """The earlier tries of the next call."""

    @property
    def unanswered_calls_max(self) -> int:
        """As in `DeliveryOptions`."""

    suspected: UnansweredCalls | None
    """The calls that the subscriber got and did not answer: one of their messages may be the
    cause."""

    async def is_connected(self) -> bool:
        """Whether the subscriber is still there, as far as is known. A subscriber that shuts down
        in order says so before it closes its connections.
        """

    async def is_free(self) -> bool:
        """Whether suspected messages may be sent now. They may not while the subscriber may have
        other suspected messages, from any partition: either could end its process.
        """

    async def keep_suspected(self) -> None:
        """Store which calls are suspected."""

    def halved(self) -> None:
        """Note that the next call has half as many messages, because one of them is suspected."""

    async def take(self) -> Call | None:
        """The next call; None if there is nothing to send now.

        Raises:
            HQueueError: the messages can't be read now.
        """

    def called(self, call: Call, decision: Decision, error: NoAnswerError | None) -> bool:
        """Record the result of a call, and keep its tries. Returns whether the result still counts.

        Args:
            call: the call.
            decision: what follows from its result.
            error: why there was no answer; None if there was one.
        """

    async def passed(self, call: Call, decision: Decision) -> None:
        """Move on past messages that are done or have become dead letters.

        Args:
            call: the part of the call that has these messages.
            decision: which of them are dead letters, and the tries to keep.
        """


class Caller:
    """Delivers to the subscribers of one queue: calls them, and acts on their answers as `Tries`
    decides.

    Args:
        queue: the queue.
        options: the delivery options of the subscribers.
        lease: whether this process may act.
        runtime: the runtime of this process.
    """

    def __init__(
        self, queue: Queue, options: DeliveryOptions, lease: Lease, runtime: Runtime
    ) -> None:
        self.options = options
        self._queue = queue
        self._lease = lease
        self._runtime = runtime

    async def deliver(self, pool: ConnectionPool, to: Receiver) -> float:
        """Make one call, and act on its answer. Returns the pause before the next call, in
        milliseconds. The messages are read only when there is a connection for them, so that a
        call that waits for a connection holds no memory.

        Raises:
            HQueueError: the messages can't be read now; or their dead letters were not written, or
                perhaps not. The call must be made again.
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
                    calling = connection.call(call, self.options.timeout_ms / 1e3)
                    if OBSERVERS:
                        calling = delivering(self._queue.name, to.name, call, calling)
                    reply = await calling
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
                text = "message %s becomes a dead letter of %s, which never answered a call with it"
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
        """Whether a lost call counts against its messages. It does not if this process was
        suspended meanwhile, or if the subscriber shut down in order.
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
