"""Dead letters are put, put back, and deleted: what lies in the log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hqueue import DeadLetter, InvalidInputError, Message, MessageID, ReceivedMessage
from hqueue.dead_letters.topics import dead_letter_topic, redrive_topic
from hqueue.dead_letters.wrapping import wrapped_deletion
from hqueue.errors import UnsupportedFormatError
from hqueue.settings.limits import BATCH_BYTES_MAX, BATCH_HEADERS_MAX
from tests.support.backends import MemoryBackend
from tests.support.dead_letters import DeadLettersInMemory, LogInMemory, original


def test_what_was_put_waits_until_it_is_put_back(
    log: LogInMemory, letters: DeadLettersInMemory
) -> None:
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
    log: LogInMemory, letters: DeadLettersInMemory
) -> None:
    letters.put([DeadLetter(original(log, b"v", partition=1), "s", "why", 3)])
    letters.redrive(letters.waiting("s"))
    redriven = log.messages[-1]
    assert letters.unwrap(redriven) == ReceivedMessage("t", b"v", redriven.id, 1)
    with pytest.raises(UnsupportedFormatError):
        letters.unwrap(original(log, b"no redrive\n"))


def test_a_value_that_fits_no_batch_stays_where_it_was(
    log: LogInMemory, letters: DeadLettersInMemory
) -> None:
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
    log: LogInMemory, letters: DeadLettersInMemory, more: dict[str, Any]
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
    log: LogInMemory, letters: DeadLettersInMemory, value: bytes, more: dict[str, Any]
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
    log: LogInMemory, letters: DeadLettersInMemory
) -> None:
    many = original(log, b"", headers=[("", b"")] * (BATCH_HEADERS_MAX // 4))
    log.batches.clear()
    letters.put([DeadLetter(many, "s", "why", 3)] * 5)
    assert log.batches == [2, 2, 1]


def test_they_are_put_in_batches_of_one_partition_and_of_a_bounded_size(
    log: LogInMemory, letters: DeadLettersInMemory
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


@pytest.mark.parametrize("owner", [{"subscriber": "s"}, {"group": "s"}])
def test_what_is_deleted_waits_no_more_and_is_delivered_to_nobody(
    log: LogInMemory,
    letters: DeadLettersInMemory,
    owner: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    wanted = [original(log, value) for value in (b"a", b"b")]
    letters.put(
        DeadLetter(each, owner.get("subscriber"), "why", 1, group=owner.get("group"))
        for each in wanted
    )
    first, second = letters.waiting(**owner)
    assert letters.delete([first]) == 1
    assert [each.message for each in letters.waiting(**owner)] == wanted[1:]
    assert letters.redriven(log.messages[-1]) is None
    assert letters.unwrap(log.messages[-1]) is None
    assert letters.delete([first, second]) == 2
    assert not list(letters.waiting(**owner))
    assert not caplog.records
    with pytest.raises(InvalidInputError, match="never put"):
        letters.delete([DeadLetter(wanted[0], "s", "why", 1)])


def test_a_release_that_knows_no_deletions_finds_no_redrive_in_one() -> None:
    letter = DeadLetter(ReceivedMessage("t", b"", MessageID(1), 0), "s", "why", 1, MessageID(2))
    message = wrapped_deletion(letter)
    assert message.topic == redrive_topic("s")
    assert message.value == b'{"version":1,"id":"1-0","subscriber":"s","deleted":"2-0"}\n'
    missing = {"topic", "reason", "attempts"} - json.loads(message.value).keys()
    assert missing  # What it read of every redrive.


def test_redrives_of_values_that_stay_in_the_log_lie_in_batches_of_their_own(
    log: LogInMemory, letters: DeadLettersInMemory
) -> None:
    large = [original(log, bytes(BATCH_BYTES_MAX)) for _ in range(2)]
    letters.put(DeadLetter(each, "s", "why", 1) for each in large)
    log.batches.clear()
    letters.redrive(letters.waiting("s"))
    assert log.batches == [1, 1]  # Who reads one holds what it puts back.


WRITTEN = {
    "a subscriber's": (
        {"subscriber": "s"},
        b'{"version":1,"id":"1-0","topic":"t","subscriber":"s","reason":"why \xe2\x82\xac",'
        b'"attempts":3,"dead_letter":null}\na\nb',
        b'{"version":1,"id":"1-0","topic":"t","subscriber":"s","reason":"why \xe2\x82\xac",'
        b'"attempts":3,"dead_letter":"2-0"}\na\nb',
    ),
    "a group's": (
        {"group": "x/y"},
        b'{"version":1,"id":"1-0","topic":"t","group":"x/y","reason":"why \xe2\x82\xac",'
        b'"attempts":3,"dead_letter":null}\na\nb',
        b'{"version":1,"id":"1-0","topic":"t","group":"x/y","reason":"why \xe2\x82\xac",'
        b'"attempts":3,"dead_letter":"2-0"}\na\nb',
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_bytes_in_the_log_are_those_of_every_release(
    name: str, log: LogInMemory, letters: DeadLettersInMemory
) -> None:
    owner, dead, redriven = WRITTEN[name]
    original(log, b"a\nb")
    letters.put([
        DeadLetter(log.messages[0], owner.get("subscriber"), "why €", 3, group=owner.get("group"))
    ])  # fmt: skip
    assert log.messages[1].value == dead
    (letter,) = letters.waiting(**owner)
    letters.redrive([letter])
    assert log.messages[2].value == redriven
    topics = (log.messages[1].topic, log.messages[2].topic)
    last = "s" if "subscriber" in owner else "group/x/y"
    assert topics == (f"hqueue.dead-letters.{last}", f"hqueue.redrive.{last}")


def test_another_queue_refuses_a_dead_letter() -> None:
    with MemoryBackend().connect() as client:
        here, there = (client.create_queue(name, partitions=1) for name in ("here", "there"))
        here.put(Message("t", b"v"), partition=0)
        with here.scan() as scanner:
            (read,) = scanner
        here.dead_letters.put([DeadLetter(read, "s", "why", 1)])
        (letter,) = here.dead_letters.waiting("s")
        assert letter.queue == "here"
        for call in (there.dead_letters.put, there.dead_letters.redrive, there.dead_letters.delete):
            with pytest.raises(InvalidInputError, match="lies in another queue"):
                call([letter])
        assert here.dead_letters.redrive([letter]) == 1
