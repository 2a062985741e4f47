"""Shares of the calls to subscribers."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from hqueue_workers.hub.subscribing.share import Share


def _taken(share: Share, host: str) -> int:
    """How many calls a host could begin now; they are begun."""
    calls = 0
    while share.has_room(host):
        share.take(host)
        calls += 1
    return calls


def _of(host: str) -> Any:
    return Mock(delivery=Mock(host=host))


def test_one_host_leaves_calls_to_others_and_these_to_further_ones() -> None:
    even, ahead = Share(32, 1), Share(64, 3)
    assert [_taken(even, host) for host in "abc"] == [16, 8, 4]
    assert [_taken(ahead, host) for host in "ab"] == [48, 12]


def test_of_however_few_calls_a_host_can_make_one() -> None:
    for calls_max in (1, 2, 3):
        assert _taken(Share(calls_max, 1), "a") >= 1


def test_those_that_wait_take_turns_by_host_where_there_is_room() -> None:
    share = Share(4, 1)
    assert _taken(share, "a") == 2
    waiting = [_of("a"), _of("b"), _of("b"), _of("c")]
    for each in waiting:
        share.wait(each)
    assert share.next() is waiting[1], "its host has no call"
    assert share.next() is waiting[3]
    assert share.next() is waiting[2]
    assert share.next() is None, "a has as many as are free"
    share.give_back("a")
    assert share.next() is waiting[0]
    assert share.next() is None


def test_a_host_without_calls_leaves_nothing_behind() -> None:
    share = Share(2, 1)
    for number in range(100):
        share.take(str(number))
        share.give_back(str(number))
    assert share.hosts == 0
