"""Records of messages that wait for their time."""

from __future__ import annotations

import random

import pytest

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.delay_records import DelayRecords, decode_delayed, encode_delayed
from hqueue.metadata.delays import (
    DELAYED_TOGETHER_MAX,
    Delay,
    Delayed,
    delays_of,
    merged_with,
)
from hqueue.metadata.ports import VALUE_BYTES_MAX
from hqueue.settings.limits import MESSAGE_ID_MAX, TIMESTAMP_MS_MAX
from tests.support.memory.metadata import MemoryCoordination, MemoryServer

NAME = "0123456789abcdef0123456789abcdef"
UNFULL_MAX = 3 * 15 + 1
"""Records that are not full: of three sizes, and one of the largest."""


def added(counts: list[int], count: int) -> tuple[list[int], int]:
    """The counts of records after so many messages more, and how many messages were rewritten."""
    delays = [Delay(f"{number:032x}", 0, each) for number, each in enumerate(counts)]
    merged = merged_with(delays, count)
    assert len({each.name for each in merged}) == len(merged)
    rewritten = sum(each.messages for each in merged)
    total = count + rewritten
    made = [DELAYED_TOGETHER_MAX] * (total // DELAYED_TOGETHER_MAX)
    made += [total % DELAYED_TOGETHER_MAX] if total % DELAYED_TOGETHER_MAX else []
    return [each.messages for each in delays if each not in merged] + made, rewritten


@pytest.mark.parametrize("seed", range(6))
def test_few_records_are_left_however_messages_come(seed: int) -> None:
    chance = random.Random(seed)
    most = [1, 3, 17, 300, 5_000, 20_000][seed]
    counts: list[int] = []
    messages = rewritten = 0
    while messages < 10_000 * (seed + 1):
        count = chance.randrange(1, most + 1)
        counts, again = added(counts, count)
        assert again < 100_000
        messages, rewritten = messages + count, rewritten + again
        assert sum(counts) == messages
        full = counts.count(DELAYED_TOGETHER_MAX)
        assert len(counts) - full <= UNFULL_MAX
    assert rewritten <= 5 * messages


def test_many_records_that_got_shorter_are_not_merged_all_at_once() -> None:
    counts = [9_999] * 100 + [3_000] * 100
    for _ in range(300):
        counts, rewritten = added(counts, 1)
        assert rewritten < 100_000
    assert len(counts) <= 200 + 2 * 15


def test_a_record_is_read_as_it_was_written() -> None:
    delayed = [Delayed(1_700_000_000_000, 7, 0), Delayed(1_700_000_000_000, 9, 3)]
    golden = b'{"version": 1, "packed": "eAGLjjY0N0AAHQVzHQWDWB0FdGFLHQXj2FgA3pkJaA=="}'
    assert decode_delayed(encode_delayed(delayed), "p") == delayed
    assert decode_delayed(golden, "p") == delayed
    for wrong in (golden.replace(b'"packed"', b'"more"'), golden.replace(b"pkJaA==", b""), b"{}"):
        with pytest.raises(UnsupportedFormatError):
            decode_delayed(wrong, "p")


def test_the_largest_record_fits_into_every_store() -> None:
    chance = random.Random(3)
    delayed = sorted(
        Delayed(chance.randrange(TIMESTAMP_MS_MAX), chance.randrange(MESSAGE_ID_MAX), number)
        for number in range(DELAYED_TOGETHER_MAX)
    )
    record = encode_delayed(delayed)
    assert len(record) < VALUE_BYTES_MAX
    assert decode_delayed(record, "p") == delayed


@pytest.mark.parametrize(
    "wrong",
    [["x", 1, 1], [NAME, -1, 1], [NAME, 1, 0], [NAME, 1, DELAYED_TOGETHER_MAX + 1], [NAME, 1]],
)
def test_a_name_that_no_release_writes_is_refused(wrong: list[object]) -> None:
    assert delays_of([[NAME, 1, 1]]) == (Delay(NAME, 1, 1),)
    with pytest.raises((TypeError, ValueError)):
        delays_of([wrong])


def test_messages_that_come_one_by_one_lie_in_few_records() -> None:
    store = MemoryCoordination(MemoryServer()).store
    records = DelayRecords(store, "/d")
    chance = random.Random(1)
    waiting = [Delayed(chance.randrange(10**6), number, 1) for number in range(5_000)]
    delays: tuple[Delay, ...] = ()
    for each in waiting:
        delays = records.add(delays, [each]).delays
        records.written(delay.name for delay in delays)
        assert len(delays) <= UNFULL_MAX
    read = [one for delay in delays for one in records.read(delay.name)[0]]
    assert sorted(read) == sorted(waiting)
    assert sum(delay.messages for delay in delays) == len(waiting)
    assert all(records.read(each.name)[0][0].due_ms == each.due_ms for each in delays)
    assert len(store.records.keys("/d", 1)) == len(delays)
