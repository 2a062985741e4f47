"""A bound on a rate, by a clock that stands still until it is moved."""

from __future__ import annotations

import random

import pytest

from hqueue.runtime.token_bucket import TokenBucket

WINDOW_MS = 1_000.0


def taken(bucket: TokenBucket, now_ms: float) -> int:
    """How many tokens are there, which are taken."""
    for count in range(10_000):
        if bucket.wait_ms(now_ms):
            return count
        bucket.take(now_ms)
    raise AssertionError("it has tokens without an end")


@pytest.mark.parametrize("tokens", [1, 7, 1_000])
def test_the_tokens_of_a_window_are_there_at_once_and_then_come_one_by_one(tokens: int) -> None:
    bucket = TokenBucket(tokens, WINDOW_MS)
    assert taken(bucket, 0.0) == tokens
    assert bucket.wait_ms(0.0) == pytest.approx(WINDOW_MS / tokens)
    assert taken(bucket, WINDOW_MS / tokens) == 1
    assert taken(bucket, 3 * WINDOW_MS) == tokens, "and no more, however long nobody takes any"
    assert not bucket.is_full(3 * WINDOW_MS + 1)
    assert bucket.is_full(4 * WINDOW_MS + 1)


def test_who_waits_as_long_as_it_says_finds_that_many() -> None:
    bucket, clock = TokenBucket(100, WINDOW_MS), random.Random(1)
    now_ms = 0.0
    for _ in range(1_000):
        count = clock.randrange(1, 101)
        now_ms += bucket.wait_ms(now_ms, count)
        assert bucket.wait_ms(now_ms, count) == 0
        bucket.take(now_ms, count)
        now_ms += clock.random() * clock.choice((0, 1, 500))


def test_in_no_time_is_more_taken_than_a_window_has_and_its_rate_allows() -> None:
    for seed in range(20):
        bucket, random_ = TokenBucket(50, WINDOW_MS), random.Random(seed)
        now_ms, times = 0.0, []
        for _ in range(2_000):
            now_ms += random_.random() * random_.choice((1, 10, 300))
            if not bucket.wait_ms(now_ms):
                bucket.take(now_ms)
                times.append(now_ms)
        for begin in range(0, len(times), 37):
            for end in range(begin, len(times), 41):
                allowed = 50 * (1 + (times[end] - times[begin]) / WINDOW_MS)
                assert end - begin + 1 <= allowed + 1.5


def test_a_debt_is_made_up_for_within_its_bound() -> None:
    bucket = TokenBucket(10, WINDOW_MS, debt_ms_max=5_000.0)
    bucket.take(0.0, 20)
    assert bucket.wait_ms(0.0) == pytest.approx(1_100.0)
    bucket.take(0.0, 1_000_000)
    assert bucket.wait_ms(0.0) == pytest.approx(5_100.0)
