"""Batches that come along with wake-ups: delivered without a read, and never believed blindly."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.doubles import Rows
from tests.unit.feed_doubles import HANDED_BYTES_MAX, Scene, Subscriber, play, until
from tests.unit.worker_doubles import settle


def test_what_comes_with_a_wake_up_is_not_read() -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        it.append(b"first")
        await until(lambda: one.got == [b"first"])
        asked = len(it.partition.rows.asked)
        for number in range(1, 50):
            it.partition.rows.append(0, b"%d" % number)
            it.hand(number)
        await until(lambda: len(one.got) == 50)
        assert one.got[1:] == [b"%d" % number for number in range(1, 50)]
        assert len(it.partition.rows.asked) == asked

    play(scene)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(["hand", "wake", "nothing", "late"]), st.integers(0, 3)),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([None, frozenset({"t"}), frozenset({"other"})]),
)
def test_whatever_comes_with_wake_ups_everything_is_delivered_once_and_in_order(
    appends: list[tuple[str, int]], topics: frozenset[str] | None
) -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one", topics=topics)
        late: list[int] = []
        for number, (told, turns) in enumerate(appends):
            it.partition.rows.append(0, b"%d" % number)
            if told == "hand":
                it.hand(number)
            elif told == "late":
                late.append(number)
            elif told == "wake":
                it.poller.wake(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            if late and turns == 3:
                it.hand(late.pop(0))
        expected = [b"%d" % n for n in range(len(appends))] if "other" not in (topics or ()) else []
        for _ in appends:  # What nobody told of takes a wake-up each, as time stands still.
            it.poller.wake(0)
            await settle()
        assert one.feed.position == it.partition.rows.rows[0][-1].slot + 1_000
        for number in late:
            it.hand(number)
        await settle()
        assert one.got == expected

    play(scene)


OTHERS = Rows()
for _value in (b"a", b"b", b"c"):
    OTHERS.append(0, _value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cells": {"t": b"forged"}},
        {"cells": {}},
        {"cells": {"u": b"second"}},
        {"header": None},
        {"header": b"HQ"},
        {"header": OTHERS.rows[0][2].header, "cells": OTHERS.rows[0][2].cells},
    ],
    ids=["other bytes", "no cells", "another topic", "no header", "half a header", "another row"],
)
def test_what_comes_with_a_wake_up_and_does_not_belong_there_is_read_instead(
    wrong: dict[str, Any],
) -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        it.append(b"first")
        await until(lambda: one.got == [b"first"])
        rows = it.partition.rows
        rows.append(0, b"second")
        it.poller.hand(dataclasses.replace(rows.rows[0][1], **wrong))
        it.poller.wake(0)
        await until(lambda: len(one.got) == 2)
        assert one.got == [b"first", b"second"]
        assert not it.runtime.failed.done()

    play(scene)


def test_what_comes_with_a_wake_up_counts_for_nothing_where_that_is_off() -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        it.append(b"first")
        await until(lambda: one.got == [b"first"])
        asked = len(it.partition.rows.asked)
        it.partition.rows.append(0, b"second")
        it.hand(1)
        await until(lambda: len(one.got) == 2)
        assert len(it.partition.rows.asked) > asked

    play(scene, handed_bytes_max=0)


def test_what_is_handed_in_and_never_taken_is_bounded() -> None:
    async def scene(it: Scene) -> None:
        slow = Subscriber(it, "slow", calls=0)
        values = [b"%06d" % n * 5_000 for n in range(1_000)]
        for number, value in enumerate(values):
            it.partition.rows.append(0, value)
            it.poller.hand(it.partition.rows.rows[0][number])
        assert it.poller._handed._bytes <= HANDED_BYTES_MAX
        it.poller.wake(0)
        slow.let()
        await until(lambda: len(slow.got) == 1_000)
        assert slow.got == values

    play(scene)
