"""What is cut of a batch for a subscriber, and the window that batches lie in."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hqueue import CorruptLogError, Message, MessageID, Queue, ReceivedMessage
from hqueue.dead_letters.dead_letters import DeadLetters
from hqueue.dead_letters.topics import dead_letter_topic, redrive_topic
from hqueue.dead_letters.wrapping import (
    DeadLetter,
    wrapped_dead_letter,
    wrapped_deletion,
    wrapped_redrive,
)
from hqueue.format.header import Header
from hqueue.handle import QueueLog
from hqueue.log.skipping import Skips
from hqueue_workers.delivery.segment import BatchSegment, Segment, SubscriptionFilter, Window
from hqueue_workers.delivery.wire import decode_messages
from tests.support.batches import few_topics, read, read_bodies
from tests.support.unreadable import BAD, unreadable_bodies

QUEUE = cast(
    Queue, SimpleNamespace(dead_letters=DeadLetters(cast(QueueLog, SimpleNamespace(name="q"))))
)
"""Nothing here needs a log: all values lie in their batches."""


def segment(messages: list[Message], gap: int = 3) -> Segment:
    batch = read(messages)
    return BatchSegment(batch.header.base - gap, batch.header.end, batch)


def sent(part: Segment, filter_: SubscriptionFilter) -> list[ReceivedMessage]:
    return [m for encoded in part.cut(QUEUE, filter_) for m in decode_messages(encoded.data)]


def wanting(
    topics: frozenset[str] | None = None, messages_max: int = 1_000, bytes_max: int = 10**6
) -> SubscriptionFilter:
    return SubscriptionFilter("s", topics, messages_max, bytes_max)


@given(few_topics, st.none() | st.frozensets(st.sampled_from("abcd"), min_size=1),
       st.integers(1, 50), st.integers(1, 200))  # fmt: skip
@example([Message("a", b"")] * 6, None, 2, 10**6)
def test_slices_cover_a_segment_with_all_that_is_wanted_in_order(
    messages: list[Message], topics: frozenset[str] | None, messages_max: int, bytes_max: int
) -> None:
    part, filter_ = segment(messages), wanting(topics, messages_max, bytes_max)
    slices = part.cut(QUEUE, filter_)
    assert (slices[0].start, slices[-1].end) == (part.start, part.end)
    for one, after in itertools.pairwise(slices):
        assert one.end == after.start
        assert after.first(after.start) == (after.ids[0] if after.ids else after.end)
        fits = len(one.data) + after.ends[0] <= bytes_max and len(one.ids) < messages_max
        assert not fits, "a slice is as full as it may be"
    batch = read(messages)
    expected = [
        ReceivedMessage(
            m.topic,
            m.value,
            MessageID.from_int(batch.header.base + place),
            7,
            key=m.key,
            headers=m.headers,
        )
        for place, m in enumerate(messages)
        if topics is None or m.topic in topics
    ]
    assert sent(part, filter_) == expected
    for encoded in slices:
        here = decode_messages(encoded.data)
        assert list(encoded.ids) == [int(message.id) for message in here]
        assert len(here) == len(encoded.ends) <= messages_max
        assert len(here) == 1 or len(encoded.data) <= bytes_max
        if here:
            assert encoded.start <= encoded.ids[0] <= encoded.ids[-1] < encoded.end
            assert encoded.ends[-1] == len(encoded.data)


@given(few_topics)
def test_those_who_want_the_same_share_it(messages: list[Message]) -> None:
    part = segment(messages)
    one = part.cut(QUEUE, SubscriptionFilter("one", None, 100, 1_000))
    assert part.slices(SubscriptionFilter("two", None, 100, 1_000)) is one
    assert part.slices(SubscriptionFilter("two", frozenset("abc"), 100, 1_000)) is one


def test_what_is_no_redrive_stops_none_of_its_neighbours() -> None:
    original = ReceivedMessage("t", b"value", MessageID(5, 6), 7)
    letter = DeadLetter(original, "s", "why", 1, MessageID(7, 8))
    part = segment(
        [
            Message("a", b"1"),
            Message(redrive_topic("s"), b"anything"),
            wrapped_redrive(letter),
            Message(redrive_topic("s"), b"[" * 100_000 + b"\n"),
            Message("b", b"2"),
        ]
    )
    for topics in (None, frozenset("ab")):
        delivered = sent(part, wanting(topics))
        assert [each.value for each in delivered] == [b"1", b"value", b"2"]


def test_dead_letters_and_redrives_are_not_delivered_unasked() -> None:
    original = ReceivedMessage(
        "t", b"value", MessageID(5, 6), 7, key=b"key", headers=[("n", b"v"), ("n", b"")]
    )
    letter = DeadLetter(original, "s", "why", 3, MessageID(8, 9))
    of_group = DeadLetter(original, None, "why", 3, MessageID(8, 9), group="s")
    messages = [
        Message("t", b"1"),
        wrapped_dead_letter(letter),
        wrapped_redrive(letter),
        Message("t", b"2"),
        wrapped_dead_letter(of_group),
        wrapped_redrive(of_group),
        wrapped_deletion(letter),
    ]
    part = segment(messages)
    assert messages[1].topic == dead_letter_topic("s")
    assert messages[2].topic == redrive_topic("s")
    assert [m.value for m in sent(part, SubscriptionFilter("other", None, 10, 100))] == [b"1", b"2"]
    own = sent(part, wanting())
    assert [(m.topic, m.value) for m in own] == [("t", b"1"), ("t", b"value"), ("t", b"2")]
    # It has an ID of its own: that of its place in the log now.
    assert own[1].id == int(own[0].id) + 2
    assert [(m.key, m.headers) for m in own] == [
        (None, ()),
        (original.key, original.headers),
        (None, ()),
    ]
    only = sent(part, wanting(frozenset({"u"})))
    assert [m.value for m in only] == [b"value"]


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=20),
    st.tuples(st.integers(0, 400), st.integers(0, 400)).map(sorted),
    st.integers(0, 10),
)
def test_a_window_keeps_what_is_needed_and_what_fits(
    lengths: list[int], places: list[int], kept: int
) -> None:
    window = Window(100)
    at = 100
    for length in lengths:
        window.add([Segment(at, at + length)])
        at += length
    assert (window.start, window.end) == (100, at)
    size = window.size // len(lengths)
    hindmost, foremost = (max(place, 100) for place in places)
    window.trim(kept * size, hindmost, foremost)
    assert window.end == at
    first: Any = window.at(window.start)
    assert window.size <= max(1, kept) * size or first.start <= foremost < first.end
    if kept * size >= len(lengths) * size and hindmost < at:
        assert window.at(hindmost) is not None
    if foremost < at:  # The one that is ahead of all others loses nothing.
        assert window.at(foremost) is not None
    for each in range(window.start, window.end):
        covering: Any = window.at(each)
        assert covering.start <= each < covering.end
    assert window.at(window.end) is None
    assert window.at(window.start - 1) is None
    if hindmost < at:  # The newest is kept for a waiting reader.
        assert window.start < window.end


def test_where_nothing_may_be_read_nobody_is_asked_what_is_passed_by() -> None:
    class Decisions:
        asked = 0

        def decide(self, row: bytes, header: Header) -> bool:
            self.asked += 1
            return True

        def note(self, *passed: object) -> None:
            """Nothing is counted here."""

    decisions = Decisions()
    bodies = unreadable_bodies([Message("a", b"1"), Message("b", b"", None, [(BAD, b"")])])
    batch = dataclasses.replace(read_bodies(bodies), skips=Skips(decisions))
    part = BatchSegment(batch.header.base, batch.header.end, batch)
    with pytest.raises(CorruptLogError):
        part.cut(QUEUE, wanting(), may_read=False)  # As on an event loop.
    assert decisions.asked == 0
    assert [message.value for message in sent(part, wanting())] == [b"1"]
    assert decisions.asked == 1
