"""Batches that come along with notifications: delivered without a read, and never believed
blindly.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hqueue_workers.delivery.poller import FRUITLESS_MAX
from tests.support.cursor_doubles import PUSHED_BYTES_MAX, Scene, Subscriber, play, until
from tests.support.doubles import Rows
from tests.support.worker_doubles import settle


def test_what_comes_with_a_notification_is_not_read() -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        it.append(b"first")
        await until(lambda: one.got == [b"first"])
        asked = len(it.partition.rows.asked)
        for number in range(1, 50):
            it.partition.rows.append(0, b"%d" % number)
            it.push(number)
        await until(lambda: len(one.got) == 50)
        assert one.got[1:] == [b"%d" % number for number in range(1, 50)]
        assert len(it.partition.rows.asked) == asked

    play(scene)


def test_it_is_delivered_at_once_also_where_notifications_were_in_vain() -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        it.append(b"first")
        await until(lambda: one.got == [b"first"])
        for _ in range(FRUITLESS_MAX):
            it.poller.notify(0)
            await settle()
        it.partition.rows.append(0, b"second")
        it.push(1)
        await until(lambda: one.got == [b"first", b"second"])  # Time stands still.

    play(scene)


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(["push", "notify", "nothing", "late"]), st.integers(0, 3)),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([None, frozenset({"t"}), frozenset({"other"})]),
)
def test_whatever_comes_with_notifications_everything_is_delivered_once_and_in_order(
    appends: list[tuple[str, int]], topics: frozenset[str] | None
) -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one", topics=topics)
        late: list[int] = []
        for number, (told, turns) in enumerate(appends):
            it.partition.rows.append(0, b"%d" % number)
            if told == "push":
                it.push(number)
            elif told == "late":
                late.append(number)
            elif told == "notify":
                it.poller.notify(0)
            for _ in range(turns):
                await asyncio.sleep(0)
            if late and turns == 3:
                it.push(late.pop(0))
        expected = [b"%d" % n for n in range(len(appends))] if "other" not in (topics or ()) else []
        for _ in appends:  # Each unreported one takes a notification, as time stands still.
            it.poller.notify(0)
            await settle()
        assert one.cursor.position == it.partition.rows.rows[0][-1].slot + 1_000
        for number in late:
            it.push(number)
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
def test_what_comes_with_a_notification_and_does_not_belong_there_is_read_instead(
    wrong: dict[str, Any],
) -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        it.append(b"first")
        await until(lambda: one.got == [b"first"])
        rows = it.partition.rows
        rows.append(0, b"second")
        it.poller.push(dataclasses.replace(rows.rows[0][1], **wrong))
        it.poller.notify(0)
        await until(lambda: len(one.got) == 2)
        assert one.got == [b"first", b"second"]
        assert not it.runtime.failed.done()

    play(scene)


def test_the_first_row_of_a_log_is_always_read_for_it_may_be_of_before_a_truncation() -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        await settle()
        it.poller.push(OTHERS.rows[0][0])
        it.poller.notify(0)
        await settle()
        assert one.got == []
        it.append(b"first")
        await until(lambda: one.got == [b"first"])

    play(scene)


def test_what_comes_with_a_notification_counts_for_nothing_where_that_is_off() -> None:
    async def scene(it: Scene) -> None:
        one = Subscriber(it, "one")
        it.append(b"first")
        await until(lambda: one.got == [b"first"])
        asked = len(it.partition.rows.asked)
        it.partition.rows.append(0, b"second")
        it.push(1)
        await until(lambda: len(one.got) == 2)
        assert len(it.partition.rows.asked) > asked

    play(scene, pushed_bytes_max=0)


def test_what_is_pushed_and_never_taken_is_bounded() -> None:
    async def scene(it: Scene) -> None:
        slow = Subscriber(it, "slow", calls=0)
        values = [b"%06d" % n * 5_000 for n in range(1_000)]
        for number, value in enumerate(values):
            it.partition.rows.append(0, value)
            it.poller.push(it.partition.rows.rows[0][number])
        assert it.poller.pushed_bytes <= PUSHED_BYTES_MAX
        it.poller.notify(0)
        slow.let()
        await until(lambda: len(slow.got) == 1_000)
        assert slow.got == values

    play(scene)
