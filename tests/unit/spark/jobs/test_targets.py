"""Into how many tasks a write is divided."""

from __future__ import annotations

import pytest

from pyspark_hqueue.jobs.targets import Target


@pytest.mark.parametrize(("partitions", "tasks"), [(1, 1), (20, 20), (10_000, 32)])
def test_the_number_of_tasks_follows_from_the_queue_alone(partitions: int, tasks: int) -> None:
    assert Target("events", partitions, "key", {}).tasks == tasks
