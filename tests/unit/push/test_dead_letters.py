"""Dead letters in a log in memory: what waits, what is put back, and what has expired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from hqueue import (
    DeadLetter,
    DeadLetters,
    InvalidInputError,
    Message,
    MessageID,
    ReceivedMessage,
    Scan,
    UnsupportedFormatError,
)
from hqueue.handle import QueueLog
from hqueue.push import dead_letters
from hqueue.push.dead_letters import dead_letter_topic, redrive_topic
from hqueue.settings.limits import BATCH_BYTES_MAX


class Log:
    """The messages of two partitions; both parts of a queue's log are this object."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.batches: list[int] = []
        self.reader = self.appender = self

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

    def expire(self, message_id: MessageID) -> None:
        self.messages = [each for each in self.messages if each.id != message_id]


class Scanner:
    def __init__(self, messages: Iterator[ReceivedMessage]) -> None:
        self._messages = messages

    def __enter__(self) -> Iterator[ReceivedMessage]:
        return cast(Any, self)

    def __exit__(self, *exc: object) -> None:
        pass

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._messages

    def next(self) -> ReceivedMessage | None:
        return next(self._messages, None)


def scanner(log: Log, partition: int | None, scan: Scan) -> Scanner:
    return Scanner(
        each
        for each in sorted(log.messages, key=lambda each: (each.partition, each.id))
        if partition in (None, each.partition)
        and scan.start <= each.id < scan.stop
        and (not scan.topics or each.topic in scan.topics)
    )


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(dead_letters, "open_scanner", scanner)
    return Log()


@pytest.fixture
def letters(log: Log) -> DeadLetters:
    return DeadLetters(cast(QueueLog, log))


def original(log: Log, value: bytes, partition: int = 0, **more: Any) -> ReceivedMessage:
    log.put([Message("t", value, **more)], partition=partition)
    return log.messages[-1]


def test_what_was_put_waits_until_it_is_put_back(log: Log, letters: DeadLetters) -> None:
    wanted = [original(log, b"a\nb"), original(log, b"", partition=1), original(log, b"c")]
    letters.put(DeadLetter(each, "s", "why", 3) for each in wanted)
    letters.put([DeadLetter(wanted[0], "another", "why", 1)])
    assert [each.topic for each in log.messages[3:6]] == [dead_letter_topic("s")] * 3
    waiting = list(letters.waiting("s"))
    assert [each.message for each in waiting] == [wanted[0], wanted[2], wanted[1]]
    assert {(each.subscriber, each.reason, each.attempts) for each in waiting} == {("s", "why", 3)}
    assert [each.message for each in letters.waiting("s", 1)] == [wanted[1]]
    assert letters.redrive(waiting[:1]) == 1
    assert log.messages[-1].topic == redrive_topic("s")
    assert [each.message for each in letters.waiting("s")] == [wanted[2], wanted[1]]
    assert [each.message for each in letters.waiting("another")] == [wanted[0]]


def test_a_redrive_is_delivered_as_the_original_under_its_own_id(
    log: Log, letters: DeadLetters
) -> None:
    letters.put([DeadLetter(original(log, b"v", partition=1), "s", "why", 3)])
    letters.redrive(letters.waiting("s"))
    redriven = log.messages[-1]
    assert letters.unwrap(redriven) == ReceivedMessage("t", b"v", redriven.id, 1)
    with pytest.raises(UnsupportedFormatError):
        letters.unwrap(original(log, b"no redrive\n"))


def test_a_value_that_fits_no_batch_stays_where_it_was(log: Log, letters: DeadLetters) -> None:
    large = original(log, bytes(BATCH_BYTES_MAX))
    letters.put([DeadLetter(large, "s", "why", 3)])
    assert len(log.messages[-1].value) < 1_000
    (letter,) = letters.waiting("s")
    assert (letter.message, letter.expired) == (large, False)
    letters.redrive([letter])
    redriven = log.messages[-1]
    delivered = letters.unwrap(redriven)
    assert delivered == ReceivedMessage("t", large.value, redriven.id, 0)
    # Of one that is rejected again the value lies with the first: the redrive has none either.
    letters.put([DeadLetter(delivered, "s", "why", 3)])
    assert [(each.message, each.expired) for each in letters.waiting("s")] == [(delivered, False)]
    log.expire(large.id)
    assert letters.unwrap(redriven) is None
    assert [(each.message.value, each.expired) for each in letters.waiting("s")] == [(b"", True)]
    with pytest.raises(InvalidInputError, match="has expired"):
        letters.redrive(letters.waiting("s"))


HEADERS = (("n", b"v"), ("", b""), ("n", b"w"))


@pytest.mark.parametrize(
    "more",
    [{"key": b"k"}, {"key": b""}, {"headers": HEADERS}, {"key": b"\n", "headers": HEADERS}],
)
def test_the_key_and_headers_stay_the_originals_all_the_way(
    log: Log, letters: DeadLetters, more: dict[str, Any]
) -> None:
    wanted = original(log, b"v", **more)
    letters.put([DeadLetter(wanted, "s", "why", 3)])
    assert (log.messages[-1].key, log.messages[-1].headers) == (wanted.key, wanted.headers)
    (letter,) = letters.waiting("s")
    assert letter.message == wanted
    letters.redrive([letter])
    redriven = log.messages[-1]
    delivered = letters.unwrap(redriven)
    assert delivered == ReceivedMessage("t", b"v", redriven.id, 0, key=wanted.key,
                                        headers=wanted.headers)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "more"),
    [
        (b"", {"key": bytes(BATCH_BYTES_MAX - 50)}),
        (b"v", {"headers": [("n", bytes(BATCH_BYTES_MAX - 50))]}),
        (bytes(BATCH_BYTES_MAX - 1_000_000), {"key": b"k", "headers": [("", b"")] * 124_995}),
    ],
)
def test_what_fits_no_batch_with_its_key_and_headers_stays_where_it_was_with_them(
    log: Log, letters: DeadLetters, value: bytes, more: dict[str, Any]
) -> None:
    large = original(log, value, **more)
    letters.put([DeadLetter(large, "s", "why", 3)])
    put = log.messages[-1]
    assert (put.key, put.headers) == (None, ())
    assert len(put.value) < 1_000
    (letter,) = letters.waiting("s")
    assert (letter.message, letter.expired) == (large, False)
    letters.redrive([letter])
    redriven = log.messages[-1]
    assert letters.unwrap(redriven) == ReceivedMessage(
        "t", value, redriven.id, 0, key=large.key, headers=large.headers
    )
    log.expire(large.id)
    assert letters.unwrap(redriven) is None


def test_headers_count_toward_the_size_of_what_is_put_together(
    log: Log, letters: DeadLetters
) -> None:
    many = original(log, b"", headers=[("", b"")] * (BATCH_BYTES_MAX // 40))
    log.batches.clear()
    letters.put([DeadLetter(many, "s", "why", 3)] * 5)
    assert log.batches == [2, 2, 1]


def test_they_are_put_in_batches_of_one_partition_and_of_a_bounded_size(
    log: Log, letters: DeadLetters
) -> None:
    sizes = [BATCH_BYTES_MAX // 5] * 5
    wanted = [original(log, bytes(size)) for size in sizes]
    wanted += [original(log, b"", partition=partition) for partition in (0, 1, 1)]
    log.batches.clear()
    letters.put(DeadLetter(each, "s", "why", 3) for each in wanted)
    assert log.batches == [2, 2, 2, 2]
    log.batches.clear()
    letters.put([DeadLetter(wanted[-1], "s", "why", 3)] * 1_001)
    assert log.batches == [1_000, 1]
