"""Dead letters in a log in memory, by the steps that both faces share."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from hqueue import DeadLetter, Message, MessageID, ReceivedMessage, Scan
from hqueue.dead_letters.originals import Originals
from hqueue.dead_letters.steps import DeadLetterSteps
from hqueue.dead_letters.topics import is_dead_letter
from hqueue.dead_letters.waiting import Wanted
from hqueue.position import Position
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import blocking
from hqueue.runtime.seldom import SeldomLog
from hqueue.runtime.steps import each_given

__all__ = ["LOGGER", "PARTITIONS", "DeadLettersInMemory", "LogInMemory", "message_at", "original"]

LOGGER = Log("dead letters")
PARTITIONS = 3


class LogInMemory:
    """The messages of three partitions."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.batches: list[int] = []

    def put(self, messages: Sequence[Message], *, partition: int) -> None:
        self.batches.append(len(messages))
        for each in messages:
            message_id = MessageID(len(self.messages) + 1)
            self.messages.append(
                ReceivedMessage(
                    each.topic, each.value, message_id, partition,
                    key=each.key, headers=each.headers,
                )
            )  # fmt: skip

    def topics(self, since: Position, count_max: int) -> list[str]:
        found = {each.topic for each in self.messages if is_dead_letter(each.topic)}
        return sorted(found)[:count_max]

    def expire(self, message_id: MessageID) -> None:
        self.messages = [each for each in self.messages if each.id != message_id]


class _Scanner:
    def __init__(self, messages: Iterator[ReceivedMessage]) -> None:
        self._messages = messages

    def close(self) -> None:
        pass

    def next(self) -> ReceivedMessage | None:
        return next(self._messages, None)


def _scanner(log: LogInMemory, scans: Mapping[int, Scan] | Scan) -> _Scanner:
    scans = dict.fromkeys(range(PARTITIONS), scans) if isinstance(scans, Scan) else scans
    return _Scanner(
        each
        for partition, scan in sorted(scans.items())
        for each in log.messages
        if partition == each.partition
        and scan.start <= each.id < scan.stop
        and (not scan.topics or each.topic in scan.topics)
    )


def message_at(log: LogInMemory, partition: int, message_id: MessageID) -> ReceivedMessage | None:
    return _scanner(log, {partition: Scan(message_id, message_id.next())}).next()


class DeadLettersInMemory:
    """The dead letters in a log in memory, by the steps that `hqueue.DeadLetters` and that of event
    loops share. Each line that they log is written.
    """

    def __init__(
        self, log: LogInMemory, read_one: Any = message_at, *, held_max: int = 100, **options: Any
    ) -> None:
        seconds = itertools.count(0, 1_000)
        clock: Any = SimpleNamespace(monotonic_ms=lambda: float(next(seconds)))
        originals = Originals(
            lambda *where: blocking(functools.partial(read_one, log, *where)),
            **{"seldom_log": SeldomLog(LOGGER, clock), **options},
        )
        steps = DeadLetterSteps(
            functools.partial(_scanner, log),
            lambda messages, partition: blocking(
                functools.partial(log.put, messages, partition=partition)
            ),
            lambda since, count_max: blocking(functools.partial(log.topics, since, count_max)),
            originals,
            held_max=held_max,
        )
        self.put, self.redrive, self.delete = steps.put, steps.redrive, steps.delete
        self.redriven, self.unwrap = steps.redriven, steps.unwrap
        self._steps = steps

    def waiting(
        self,
        subscriber: str | None = None,
        partition: int | None = None,
        *,
        on_unreadable: Any = None,
        **wanted: Any,
    ) -> Iterator[DeadLetter]:
        chosen = Wanted(subscriber, partition=partition, **wanted)
        return each_given(self._steps.waiting(chosen, on_unreadable), lambda _: None)


def original(log: LogInMemory, value: bytes, partition: int = 0, **more: Any) -> ReceivedMessage:
    """Put a message, and give it as it was read."""
    log.put([Message("t", value, **more)], partition=partition)
    return log.messages[-1]
