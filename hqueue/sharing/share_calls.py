"""The calls of share consumers, for threads and for event loops."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from typing import Any

from hqueue.dead_letters.of_groups import check_reason
from hqueue.errors import InvalidInputError
from hqueue.position import as_due_ms
from hqueue.runtime.interrupts import is_own
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.kinds import check_kind
from hqueue.settings.numbers import check_number
from hqueue.sharing.acquired_message import AcquiredMessage
from hqueue.sharing.held import Answer
from hqueue.sharing.share_options import ShareSettings
from hqueue.sharing.shared_consumption import SharedConsumption

__all__ = ["Delay", "ShareCalls", "idle_ms_of"]

Delay = datetime.datetime | datetime.timedelta | int | None
"""When a released message may be delivered again: at an aware datetime, after a timedelta, or at a
number of milliseconds since the epoch; None for at once."""


def idle_ms_of(idle_ms_max: float | None) -> float:
    """How long an iteration waits for a message at most. None means forever."""
    if idle_ms_max is None:
        return float("inf")
    return check_number(idle_ms_max, 0, float("inf"), option="idle_ms_max")


class ShareCalls(Stepwise):
    """The calls of `hqueue.ShareConsumer` and `hqueue.aio.ShareConsumer`, which describe them.

    Args:
        consumption: the messages that the consumer hands out.
        settings: the consumer's settings.
    """

    def __init__(self, consumption: SharedConsumption, settings: ShareSettings) -> None:
        self._consumption = consumption
        self._settings = settings

    @stepwise
    def poll(
        self, timeout_ms: float, messages_max: int, acquire_max: int
    ) -> Work[Any, list[AcquiredMessage]]:
        if self._settings.auto_acknowledge:
            self._consumption.answering.answer_all(Answer.DONE)
        take = self._consumption.take.asked(timeout_ms, messages_max, acquire_max)
        taken: list[AcquiredMessage] = yield take
        return taken

    @contextlib.contextmanager
    def handing_out(self) -> Iterator[None]:
        """A block that hands out messages. If an interruption or a task's cancellation ends the
        block, the messages are given back, since the program never got them.
        """
        try:
            yield
        except BaseException as exc:
            if not is_own(exc):
                self._consumption.take_back()
            raise

    def acknowledge(self, messages: Sequence[AcquiredMessage]) -> bool:
        return self._answer(messages, Answer.DONE)

    def release(self, messages: Sequence[AcquiredMessage], delay: Delay, counts: bool) -> bool:
        check_kind(counts, bool, "counts")
        if not counts and delay is not None:
            raise InvalidInputError(
                "a message whose delivery does not count can't be delayed: give `until` or "
                "`counts=False`"
            )
        due_ms = None if delay is None else as_due_ms(delay)
        return self._answer(messages, Answer.RELEASE if counts else Answer.RETURN, due_ms)

    def renew(self, messages: Sequence[AcquiredMessage]) -> bool:
        return self._answer(messages, Answer.RENEW)

    def reject(self, messages: Sequence[AcquiredMessage], reason: str, exhausted: bool) -> bool:
        self._check(messages)
        check_kind(exhausted, bool, "exhausted")
        return self._consumption.answering.reject(
            messages, check_reason(reason), exhausted=exhausted
        )

    @stepwise
    def commit(self) -> Work[Any, None]:
        yield self._consumption.write.asked()

    def _answer(
        self, messages: Sequence[AcquiredMessage], answer: Answer, due_ms: int | None = None
    ) -> bool:
        self._check(messages)
        return self._consumption.answering.answer(messages, answer, due_ms)

    def _check(self, messages: Sequence[AcquiredMessage]) -> None:
        self._consumption.check_open()
        for each in messages:
            check_kind(each, AcquiredMessage, "message")
        foreign = self._consumption.answering.foreign(messages)
        if foreign is not None:
            raise InvalidInputError(
                "this consumer does not consume the message's queue: answer with the consumer that "
                "returned the message",
                queue=foreign.queue,
            )
