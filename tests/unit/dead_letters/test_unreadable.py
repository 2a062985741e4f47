"""What is no dead letter and no redrive hides none, and is named."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from hqueue import CorruptLogError, DeadLetter, Message, MessageID, ReceivedMessage
from hqueue.dead_letters.topics import dead_letter_topic, redrive_topic
from hqueue.errors import UnsupportedFormatError
from hqueue.runtime.seldom import SeldomLog
from hqueue.settings.limits import BATCH_BYTES_MAX
from tests.support.dead_letters import (
    LOGGER,
    DeadLettersInMemory,
    LogInMemory,
    message_at,
    original,
)


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
    name: str, log: LogInMemory, letters: DeadLettersInMemory, caplog: pytest.LogCaptureFixture
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
    name: str, log: LogInMemory, letters: DeadLettersInMemory, caplog: pytest.LogCaptureFixture
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
    log: LogInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    letters = DeadLettersInMemory(log, seldom_log=SeldomLog(LOGGER))
    log.put([Message(dead_letter_topic("s"), b"none")] * 1_000, partition=0)
    began_s = time.monotonic()
    assert not list(letters.waiting("s"))
    assert 1 <= len(caplog.records) <= 1 + time.monotonic() - began_s


def test_a_chain_of_redrives_that_is_too_long_ends_and_a_long_one_is_followed(
    log: LogInMemory,
) -> None:
    letters = DeadLettersInMemory(log, links_max=20)
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
    log: LogInMemory, letters: DeadLettersInMemory
) -> None:
    lost = original(log, bytes(BATCH_BYTES_MAX))
    kept = original(log, b"v")
    letters.put(DeadLetter(each, "s", "why", 1) for each in (lost, kept))

    def torn(log: LogInMemory, partition: int, message_id: MessageID) -> ReceivedMessage | None:
        if message_id == lost.id:
            raise CorruptLogError("a topic's messages in a batch fail their checksum")
        return message_at(log, partition, message_id)

    unreadable: list[str] = []
    waiting = DeadLettersInMemory(log, torn).waiting(
        "s", on_unreadable=lambda _, exc: unreadable.append(exc.text)
    )
    assert [each.message for each in waiting] == [kept]
    assert unreadable == ["a topic's messages in a batch fail their checksum"]
