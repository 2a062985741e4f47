"""A group's plan, over a metadata store in memory."""

from __future__ import annotations

import pytest

from hqueue.errors import InvalidInputError
from hqueue.groups.paths import GroupPaths
from hqueue.groups.plan import GroupPlan
from hqueue.metadata import PartitionKey
from hqueue.metadata.ports import VALUE_BYTES_MAX
from tests.support.memory.metadata import MemoryServer

PATHS = GroupPaths("/hqueue", "g")


def test_a_plan_that_is_too_large_is_refused_and_the_one_before_stays(
    metadata_server: MemoryServer,
) -> None:
    store = metadata_server.open()
    plan = GroupPlan(store, PATHS)
    plan.write({PartitionKey("q", 0): "a"})
    before = store.records.read([PATHS.plan])
    keys = [PartitionKey(f"{number:0100}", 0) for number in range(VALUE_BYTES_MAX // 100)]
    with pytest.raises(InvalidInputError, match="more partitions than its plan can hold"):
        plan.write(dict.fromkeys(keys, "a"))
    assert store.records.read([PATHS.plan]) == before
