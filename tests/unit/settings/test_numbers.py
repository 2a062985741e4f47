"""A whole number in a range is checked in one place, and refused in one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hqueue import HQueueError, InvalidInputError, Settings, SettingsError
from hqueue.metadata import DeliveryOptions
from hqueue.settings.attributes import check_attributes, check_partition
from hqueue.settings.numbers import check_whole, is_whole, read_whole
from hqueue_workers.node.settings import WorkerSettings


@pytest.mark.parametrize(
    ("value", "whole"),
    [(1, True), (3, True), (0, False), (4, False), (True, False), (2.0, False), ("2", False)],
)
def test_a_whole_number_lies_between_its_bounds_which_are_included(
    value: object, whole: bool
) -> None:
    assert is_whole(value, 1, 3) is whole


def test_what_has_no_greatest_may_be_as_large_as_it_likes() -> None:
    assert check_whole(10**30, 1) == 10**30
    with pytest.raises(InvalidInputError) as raised:
        check_whole(0, 1, option="n")
    assert raised.value.facts == {"option": "n", "value": 0, "low": 1}


def test_a_text_says_a_number_only_where_texts_are_read() -> None:
    assert read_whole(" 12 ", 1, 20) == 12
    with pytest.raises(InvalidInputError):
        check_whole("12", 1, 20)


@pytest.mark.parametrize(
    ("check", "error", "facts"),
    [
        (
            lambda: DeliveryOptions(timeout_ms=0),
            InvalidInputError,
            {"option": "timeout_ms", "value": 0, "low": 100},
        ),
        (
            lambda: Settings(connections_max=0),
            SettingsError,
            {"setting": "connections_max", "value": 0, "low": 1},
        ),
        (
            lambda: WorkerSettings(threads="many"),  # type: ignore[arg-type]
            SettingsError,
            {"setting": "threads", "value": "many", "low": 1},
        ),
        (
            lambda: check_attributes({"compaction_files_min": "1"}),
            InvalidInputError,
            {"attribute": "compaction_files_min", "value": 1, "low": 2},
        ),
    ],
)
def test_what_is_out_of_its_range_is_told_with_what_it_is_and_the_bounds(
    check: Callable[[], object], error: type[HQueueError], facts: dict[str, Any]
) -> None:
    with pytest.raises(error, match="whole number in its range") as raised:
        check()
    assert facts.items() <= raised.value.facts.items()


@pytest.mark.parametrize("partition", [-1, 4, True, "1", None, 1.0])
def test_a_partition_is_one_of_its_queues(partition: object) -> None:
    assert check_partition(3, 4) == 3
    with pytest.raises(InvalidInputError, match="no such partition") as raised:
        check_partition(partition, 4, queue="q")
    assert raised.value.facts == {"queue": "q", "partition": partition, "partitions": 4}
