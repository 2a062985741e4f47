"""Dead letters in a log in memory: what waits, what is put back, and what has expired."""

from __future__ import annotations

import functools
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
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
from hqueue.dead_letters.originals import Originals
from hqueue.dead_letters.steps import DeadLetterSteps
from hqueue.dead_letters.topics import (
    DeadLetterOwner,
    dead_letter_topic,
    is_dead_letter,
    redrive_topic,
)
from hqueue.dead_letters.waiting import Wanted
from hqueue.dead_letters.wrapping import wrapped_deletion
from hqueue.errors import UnsupportedFormatError
from hqueue.position import Position
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import blocking
from hqueue.runtime.seldom import SeldomLog
from hqueue.runtime.steps import each_given
from hqueue.settings.limits import BATCH_BYTES_MAX, BATCH_HEADERS_MAX, TOPIC_BYTES_MAX

LOGGER = Log("dead letters")
PARTITIONS = 3


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

    def topics(self, since: Position, count_max: int) -> list[str]:
        found = {each.topic for each in self.messages if is_dead_letter(each.topic)}
        return sorted(found)[:count_max]

    def expire(self, message_id: MessageID) -> None:
        self.messages = [each for each in self.messages if each.id != message_id]


class Scanner:
    def __init__(self, messages: Iterator[ReceivedMessage]) -> None:
        self._messages = messages

    def close(self) -> None:
        pass

    def next(self) -> ReceivedMessage | None:
        return next(self._messages, None)


def scanner(log: Log, scans: Mapping[int, Scan] | Scan) -> Scanner:
    scans = dict.fromkeys(range(PARTITIONS), scans) if isinstance(scans, Scan) else scans
    return Scanner(
        each
        for partition, scan in sorted(scans.items())
        for each in log.messages
        if partition == each.partition
        and scan.start <= each.id < scan.stop
        and (not scan.topics or each.topic in scan.topics)
    )


def message_at(log: Log, partition: int, message_id: MessageID) -> ReceivedMessage | None:
    return scanner(log, {partition: Scan(message_id, message_id.next())}).next()


class Letters:
    """The dead letters in a log in memory, by the steps that `hqueue.DeadLetters` and that of event
    loops share. Each line that they log is written.
    """

    def __init__(
        self, log: Log, read_one: Any = message_at, *, held_max: int = 100, **options: Any
    ) -> None:
        seconds = itertools.count(0, 1_000)
        clock: Any = SimpleNamespace(monotonic_ms=lambda: float(next(seconds)))
        originals = Originals(
            lambda *where: blocking(functools.partial(read_one, log, *where)),
            **{"seldom_log": SeldomLog(LOGGER, clock), **options},
        )
        steps = DeadLetterSteps(
            functools.partial(scanner, log),
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

    def torn(log: Log, partition: int, message_id: MessageID) -> ReceivedMessage | None:
        if message_id == lost.id:
            raise CorruptLogError("a topic's messages in a batch fail their checksum")
        return message_at(log, partition, message_id)

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


def test_a_message_that_is_put_twice_is_one_dead_letter_until_it_is_ended(
    log: Log, letters: Letters
) -> None:
    wanted = original(log, b"v")
    letters.put([DeadLetter(wanted, None, "first", 1, group="g")])
    letters.put([DeadLetter(wanted, None, "second", 2, group="g")])
    (letter,) = letters.waiting(group="g")
    assert (letter.reason, letter.message, letter.group) == ("first", wanted, "g")
    assert letters.redrive([letter]) == 1
    assert not list(letters.waiting(group="g"))
    # Rejected again after that, as by a group that was set back: it waits again.
    letters.put([DeadLetter(wanted, None, "third", 1, group="g")])
    assert [each.reason for each in letters.waiting(group="g")] == ["third"]


@pytest.mark.parametrize("owner", [{"subscriber": "s"}, {"group": "s"}])
def test_what_is_deleted_waits_no_more_and_is_delivered_to_nobody(
    log: Log, letters: Letters, owner: dict[str, str], caplog: pytest.LogCaptureFixture
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


LONG = "ü" * 150


@pytest.mark.parametrize("group", ["s", "a group\nof two lines", "x/y", LONG])
def test_a_group_s_are_no_subscriber_s_whatever_the_name(
    log: Log, letters: Letters, group: str
) -> None:
    wanted = original(log, b"v", key=b"k")
    letters.put([DeadLetter(wanted, None, "why", 2, group=group)])
    letters.put([DeadLetter(wanted, "s", "why not", 3)])
    put = log.messages[-2]
    assert (put.key, json.loads(put.value.split(b"\n")[0])["group"]) == (b"k", group)
    assert len(put.topic.encode()) <= TOPIC_BYTES_MAX
    (of_group,) = letters.waiting(group=group)
    (of_subscriber,) = letters.waiting("s")
    assert (of_group.message, of_group.group, of_group.subscriber) == (wanted, group, None)
    assert (of_subscriber.reason, of_subscriber.group) == ("why not", None)
    letters.redrive([of_group])
    assert log.messages[-1].topic == of_group.owner.redrive_topic
    assert not list(letters.waiting(group=group))
    assert list(letters.waiting("s")) == [of_subscriber]
    delivered = letters.unwrap(log.messages[-1])
    assert delivered is not None
    assert (delivered.topic, delivered.value, delivered.key) == ("t", b"v", b"k")


def test_two_long_names_of_groups_have_topics_of_their_own() -> None:
    topics = {DeadLetterOwner("group", LONG + last).dead_letter_topic for last in "ab"}
    assert len(topics) == 2


def test_those_of_everyone_come_owner_by_owner(log: Log, letters: Letters) -> None:
    wanted = original(log, b"v", partition=1)
    for subscriber, group in (("s", None), (None, "g"), (None, LONG)):
        letters.put([DeadLetter(wanted, subscriber, "why", 1, group=group)])
    found = [each.owner for each in letters.waiting()]
    assert sorted(found) == [("group", "g"), ("group", LONG), ("subscriber", "s")]
    assert not list(letters.waiting(partition=0))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["no PAGE", "no page", "gone"]),
        ({"topic": "u"}, ["gone"]),
        ({"topic": "missing"}, []),
        ({"reason": "Page"}, ["no PAGE", "no page"]),
        ({"reason": "page", "topic": "u"}, []),
        ({"since": MessageID(5)}, ["no page", "gone"]),
        ({"until": MessageID(6)}, ["no PAGE", "no page"]),
        ({"since": MessageID(5), "until": MessageID(6)}, ["no page"]),
    ],
)
def test_filters(log: Log, letters: Letters, wanted: dict[str, Any], found: list[str]) -> None:
    for topic in "ttu":
        log.put([Message(topic, b"v")], partition=0)
    for each, reason in zip(log.messages[:3], ["no PAGE", "no page", "gone"], strict=True):
        letters.put([DeadLetter(each, None, reason, 1, group="g")])
    assert [each.reason for each in letters.waiting(group="g", **wanted)] == found


@pytest.mark.parametrize(
    "wanted",
    [
        {"subscriber": "s", "group": "g"},
        {"subscriber": "a/b"},
        {"group": ""},
        {"group": "x" * 201},
        {"group": "\ud800"},
        {"group": 1},
        {"topic": 1, "group": "g"},
        {"reason": b"x", "group": "g"},
        {"since": 2, "until": 1, "group": "g"},
    ],
)
def test_filters_that_are_refused(letters: Letters, wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        letters.waiting(**wanted)


@pytest.mark.parametrize("held_max", [1, 2, 3, 7])
def test_however_few_are_held_each_that_waits_comes_once(log: Log, held_max: int) -> None:
    letters = Letters(log, held_max=held_max)
    wanted = [original(log, b"%d" % n, partition=n % PARTITIONS) for n in range(20)]
    letters.put(DeadLetter(each, "s", "why", 1) for each in wanted)
    waiting = list(letters.waiting("s"))
    assert sorted(each.message.id for each in waiting) == [each.id for each in wanted]
    letters.redrive(waiting[::2])
    letters.delete(waiting[1::6])
    left = {each.id for each in letters.waiting("s")}
    assert left == {each.id for each in waiting} - {
        each.id for each in waiting[::2] + waiting[1::6]
    }


def test_redrives_of_values_that_stay_in_the_log_lie_in_batches_of_their_own(
    log: Log, letters: Letters
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
    name: str, log: Log, letters: Letters
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
