"""Pauses grow up to their bound, and are as random as they are meant to be."""

from __future__ import annotations

from itertools import islice

from hqueue.runtime.backoff import Backoff


def test_pauses_grow_from_the_first_to_the_longest() -> None:
    backoff = Backoff(10.0, 65.0)
    assert list(islice(backoff.pauses(), 5)) == [10.0, 20.0, 40.0, 65.0, 65.0]
    assert [backoff.after(failures) for failures in (1, 2, 3, 4, 5)] == [
        10.0,
        20.0,
        40.0,
        65.0,
        65.0,
    ]
    assert [backoff.longer(pause_ms) for pause_ms in (0.0, 3.0, 10.0, 40.0)] == [10, 10, 20, 65]


def test_a_first_pause_above_the_longest_is_cut() -> None:
    backoff = Backoff(10.0, 5.0)
    assert next(backoff.pauses()) == backoff.after(1) == backoff.longer(0.0) == 5.0


def test_random_pauses_lie_in_their_spread_and_differ() -> None:
    backoff = Backoff(100.0, 100.0, spread=(0.5, 1.5))
    pauses = list(islice(backoff.pauses(), 200))
    assert all(50.0 <= pause_ms <= 150.0 for pause_ms in pauses)
    assert min(pauses) < 80.0
    assert max(pauses) > 120.0


def test_failures_without_end_overflow_nothing() -> None:
    assert Backoff(1, 30_000).after(10**9) == 30_000
    assert list(islice(Backoff(1.0, 1e9).pauses(), 3_000))[-1] == 1e9
