"""Dead letters in a log in memory: what waits, what is put back, and what has expired."""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hqueue import (
    CorruptLogError,
    DeadLetter,
    InvalidInputError,
    Message,
    MessageID,
    ReceivedMessage,
    Scan,
)
from hqueue.dead_letters.steps import DeadLetterSteps
from hqueue.dead_letters.topics import dead_letter_topic, redrive_topic
from hqueue.errors import UnsupportedFormatError
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import blocking
from hqueue.runtime.seldom import SeldomLog
from hqueue.runtime.steps import each_given
from hqueue.settings.limits import BATCH_BYTES_MAX, BATCH_HEADERS_MAX

LOGGER = Log("dead letters")


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

    def close(self) -> None:
        pass

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


class Letters:
    """The dead letters in a log in memory, by the steps that `hqueue.DeadLetters` and that of event
    loops share. Each line that they log is written.
    """

    def __init__(self, log: Log, open_scan: Any = scanner, **options: Any) -> None:
        seconds = itertools.count(0, 1_000)
        clock: Any = SimpleNamespace(monotonic_ms=lambda: float(next(seconds)))
        steps = DeadLetterSteps(
            functools.partial(open_scan, log),
            lambda messages, partition: blocking(
                functools.partial(log.put, messages, partition=partition)
            ),
            **{"seldom_log": SeldomLog(LOGGER, clock), **options},
        )
        self.put, self.redrive = steps.put, steps.redrive
        self.redriven, self.unwrap = steps.redriven, steps.unwrap
        self._steps = steps

    def waiting(
        self, subscriber: str, partition: int | None = None, *, on_unreadable: Any = None
    ) -> Iterator[DeadLetter]:
        return each_given(self._steps.waiting(subscriber, partition, on_unreadable), lambda _: None)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def letters(log: Log) -> Letters:
    return Letters(log)


def lines(**changed: Any) -> bytes:
    """A first line with some fields as no writer writes them."""
    fields = {"version": 1, "id": "1-0", "topic": "t", "subscriber": "s", "reason": "why",
              "attempts": 1, "dead_letter": None}  # fmt: skip
    return json.dumps({**fields, **changed}).encode() + b"\n"


GARBAGE = {
    "nothing": b"",
    "no line": b"hello",
    "no JSON": b"hello\n",
    "a list": b"[]\n",
    "no fields": b"{}\n",
    "deep": b"[" * 60_000 + b"\n",
    "a line without an end": b'{"version":1' + b" " * 100_000 + b"}\n",
    "a number of 5,000 digits": lines().replace(b'"attempts": 1', b'"attempts": ' + b"9" * 5_000),
    "another version": lines(version=2),
    "attempts as text": lines(attempts="9" * 5_000),
    "attempts below none": lines(attempts=-1),
    "an ID of 5,000 digits": lines(id="9" * 5_000 + "-0"),
    "no ID": lines(id=None),
    "a dead letter that is a list": lines(dead_letter=[1]),
    "a topic that none can have": lines(topic="x" * 300),
    "an empty topic": lines(topic=""),
    "half a character": lines(topic="\ud800"),
    "a reason of half a character": lines(reason="\ud800"),
    "another subscriber": lines(subscriber="another"),
    "a subscriber with a slash": lines(subscriber="s/t"),
    "itself": lines(id="3-0", value="in the log"),
    "what comes later": lines(id="99-0", value="in the log"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_dead_letter_is_named_and_hides_none(
    name: str, log: Log, letters: Letters, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = original(log, b"v")
    letters.put([DeadLetter(wanted, "s", "why", 3)])
    log.put([Message(dead_letter_topic("s"), GARBAGE[name])], partition=0)
    log.put([Message(redrive_topic("s"), lines() if name == "itself" else GARBAGE[name])],
            partition=0)  # fmt: skip
    unreadable: list[int] = []
    waiting = list(letters.waiting("s", on_unreadable=lambda m, exc: unreadable.append(m.id)))
    assert [each.message for each in waiting] == [wanted]
    assert [MessageID(3)] == [each for each in unreadable if each == MessageID(3)]
    assert [each.message for each in letters.waiting("s")] == [wanted]
    assert "not a valid dead letter: partition 0, 3-0" in caplog.text
    assert letters.redrive(letters.waiting("s")) == 1
    assert not list(letters.waiting("s"))


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_redrive_is_passed_over_and_logged(
    name: str, log: Log, letters: Letters, caplog: pytest.LogCaptureFixture
) -> None:
    original(log, b"v")
    log.put([Message(redrive_topic("s"), b"")] * 2, partition=0)
    message = ReceivedMessage(redrive_topic("s"), GARBAGE[name], MessageID(3), 0)
    log.messages[-1] = message
    assert letters.redriven(message) is None
    assert "not a valid dead letter: partition 0, 3-0" in caplog.text
    with pytest.raises(UnsupportedFormatError):
        letters.unwrap(message)


def test_a_thousand_messages_that_are_no_dead_letters_are_one_line_a_second(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    letters = Letters(log, seldom_log=SeldomLog(LOGGER))
    log.put([Message(dead_letter_topic("s"), b"none")] * 1_000, partition=0)
    began_s = time.monotonic()
    assert not list(letters.waiting("s"))
    assert 1 <= len(caplog.records) <= 1 + time.monotonic() - began_s


def test_a_chain_of_redrives_that_is_too_long_ends_and_a_long_one_is_followed(
    log: Log,
) -> None:
    letters = Letters(log, links_max=20)
    original(log, b"v")
    for before in range(1, 30):
        value = lines(id=f"{before}-0", value="in the log")
        log.put([Message(redrive_topic("s"), value)], partition=0)
    found = letters.unwrap(log.messages[20])
    assert found is not None
    assert found.value == b"v"
    with pytest.raises(UnsupportedFormatError):
        letters.unwrap(log.messages[21])


def test_a_dead_letter_whose_original_can_not_be_read_hides_no_other(
    log: Log, letters: Letters
) -> None:
    lost = original(log, bytes(BATCH_BYTES_MAX))
    kept = original(log, b"v")
    letters.put(DeadLetter(each, "s", "why", 1) for each in (lost, kept))

    def torn(log: Log, partition: int | None, scan: Scan) -> Scanner:
        if scan.start == lost.id:
            raise CorruptLogError("a topic's messages in a batch fail their checksum")
        return scanner(log, partition, scan)

    unreadable: list[str] = []
    waiting = Letters(log, torn).waiting(
        "s", on_unreadable=lambda _, exc: unreadable.append(exc.text)
    )
    assert [each.message for each in waiting] == [kept]
    assert unreadable == ["a topic's messages in a batch fail their checksum"]


def original(log: Log, value: bytes, partition: int = 0, **more: Any) -> ReceivedMessage:
    log.put([Message("t", value, **more)], partition=partition)
    return log.messages[-1]


def test_what_was_put_waits_until_it_is_put_back(log: Log, letters: Letters) -> None:
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
    log: Log, letters: Letters
) -> None:
    letters.put([DeadLetter(original(log, b"v", partition=1), "s", "why", 3)])
    letters.redrive(letters.waiting("s"))
    redriven = log.messages[-1]
    assert letters.unwrap(redriven) == ReceivedMessage("t", b"v", redriven.id, 1)
    with pytest.raises(UnsupportedFormatError):
        letters.unwrap(original(log, b"no redrive\n"))


def test_a_value_that_fits_no_batch_stays_where_it_was(log: Log, letters: Letters) -> None:
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
    log: Log, letters: Letters, more: dict[str, Any]
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
    log: Log, letters: Letters, value: bytes, more: dict[str, Any]
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


def test_headers_count_toward_the_size_of_what_is_put_together(log: Log, letters: Letters) -> None:
    many = original(log, b"", headers=[("", b"")] * (BATCH_HEADERS_MAX // 4))
    log.batches.clear()
    letters.put([DeadLetter(many, "s", "why", 3)] * 5)
    assert log.batches == [2, 2, 1]


def test_they_are_put_in_batches_of_one_partition_and_of_a_bounded_size(
    log: Log, letters: Letters
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
