"""Which dead letters wait: of whom, once for each message, and however few are held."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hqueue import DeadLetter, InvalidInputError, Message, MessageID
from hqueue.dead_letters.topics import DeadLetterOwner
from hqueue.settings.limits import TOPIC_BYTES_MAX
from tests.support.dead_letters import PARTITIONS, DeadLettersInMemory, LogInMemory, original


def test_a_message_that_is_put_twice_is_one_dead_letter_until_it_is_ended(
    log: LogInMemory, letters: DeadLettersInMemory
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


LONG = "ü" * 150


@pytest.mark.parametrize("group", ["s", "a group\nof two lines", "x/y", LONG])
def test_a_group_s_are_no_subscriber_s_whatever_the_name(
    log: LogInMemory, letters: DeadLettersInMemory, group: str
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


def test_those_of_everyone_come_owner_by_owner(
    log: LogInMemory, letters: DeadLettersInMemory
) -> None:
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
def test_filters(
    log: LogInMemory, letters: DeadLettersInMemory, wanted: dict[str, Any], found: list[str]
) -> None:
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
def test_filters_that_are_refused(letters: DeadLettersInMemory, wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        letters.waiting(**wanted)


@pytest.mark.parametrize("held_max", [1, 2, 3, 7])
def test_however_few_are_held_each_that_waits_comes_once(log: LogInMemory, held_max: int) -> None:
    letters = DeadLettersInMemory(log, held_max=held_max)
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
