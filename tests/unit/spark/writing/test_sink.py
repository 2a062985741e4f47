"""What the sink makes of a batch's end."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from hqueue import InvalidInputError
from pyspark_hqueue.writing.sink import QueueStreamWriter, Written
from pyspark_hqueue.writing.write_options import WriteOptions


def test_a_batch_of_which_a_task_was_dropped_is_not_committed() -> None:
    options = WriteOptions.of({"queue": "events"}, "stream")
    writer = QueueStreamWriter(options, 1, StructType())
    writer.commit([Written(1, 2)], 0)
    with pytest.raises(InvalidInputError, match="continuous trigger"):
        writer.commit([Written(1, 2), None], 1)


def test_an_epoch_belongs_to_a_write_that_has_an_id() -> None:
    assert (
        WriteOptions.of({"queue": "q", "writeId": "a", "writeEpoch": "3"}, "batch").write_epoch == 3
    )
    with pytest.raises(InvalidInputError, match="give both"):
        WriteOptions.of({"queue": "q", "writeEpoch": "3"}, "batch")
