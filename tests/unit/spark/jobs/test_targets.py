"""Into how many tasks a write is divided, and what it may be."""

from __future__ import annotations

import pytest

from hqueue import InvalidInputError
from pyspark_hqueue.jobs.targets import Target
from pyspark_hqueue.writing.write_options import WriteOptions


@pytest.mark.parametrize(("partitions", "tasks"), [(1, 1), (20, 20), (10_000, 32)])
def test_the_number_of_tasks_follows_from_the_queue_alone(partitions: int, tasks: int) -> None:
    assert Target("events", partitions, "key", {}).tasks == tasks


def test_a_write_to_a_topic_of_the_systems_own_is_refused_before_it_begins() -> None:
    with pytest.raises(InvalidInputError, match="system's own"):
        WriteOptions.of({"queue": "q", "topic": "hqueue.redrive.s"}, "batch")
