"""A stream's checkpoint, as Spark writes it, is read without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from hqueue import InvalidInputError, MessageID
from hqueue.cli.commands.spark_checkpoint import positions_of
from pyspark_hqueue.reading.plan import Position
from pyspark_hqueue.reading.stream_offsets import offset_of

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
FIRST, SECOND = MessageID(1_700_000_000_000), MessageID(1_700_000_000_001, 5)


def offset(queue: str = "events", **changes: Any) -> str:
    """As the stream of this project writes it."""
    positions = {0: Position(int(SECOND), 12), 11: Position(0, 0)}
    start = {0: Position(int(FIRST), 7), 11: Position(0, 0)}
    return json.dumps({**offset_of(queue, positions, start), **changes})


def batch(checkpoint: Path, number: int, *offsets: str, version: int = 1) -> None:
    """A batch that was begun."""
    (checkpoint / "offsets").mkdir(exist_ok=True)
    text = "\n".join([f"v{version}", METADATA, *offsets])
    (checkpoint / "offsets" / str(number)).write_text(text)
    (checkpoint / "offsets" / f".{number}.crc").write_bytes(b"crc\0")


def finish(checkpoint: Path, number: int) -> None:
    (checkpoint / "commits").mkdir(exist_ok=True)
    (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (checkpoint / "commits" / f".{number}.crc").write_bytes(b"crc\0")


def test_what_counts_is_the_last_batch_that_is_finished(tmp_path: Path) -> None:
    for number in range(8, 11):
        batch(tmp_path, number, offset(partitions={"0": [int(FIRST) + number, number]}))
    batch(tmp_path, 11, offset())
    for number in range(8, 11):
        finish(tmp_path, number)
    assert positions_of(str(tmp_path), "events") == {0: MessageID.from_int(int(FIRST) + 10)}
    finish(tmp_path, 11)
    assert positions_of(str(tmp_path), "events") == {0: SECOND, 11: MessageID(0)}


def test_before_the_first_batch_is_finished_it_is_where_the_query_began(tmp_path: Path) -> None:
    batch(tmp_path, 0, offset())
    assert positions_of(str(tmp_path), "events") == {0: FIRST, 11: MessageID(0)}


@pytest.mark.parametrize("version", [1, 2])
def test_other_sources_of_a_query_are_left_out(tmp_path: Path, version: int) -> None:
    others = ["-", '{"clicks":{"0":23}}', '{"logOffset":4}', offset("others"), "17"]
    earlier = offset(partitions={"0": [int(FIRST), 7]})
    offsets = [*others, offset(), earlier]
    if version == 2:
        offsets = [f"source{n}:{each}" for n, each in enumerate(offsets)]
    batch(tmp_path, 3, *offsets, version=version)
    finish(tmp_path, 3)
    found = positions_of(str(tmp_path), "events")
    assert found == {0: FIRST, 11: MessageID(0)}, "of two reads the one that is further behind"


def test_an_offset_that_does_not_name_its_queue_counts(tmp_path: Path) -> None:
    unnamed = json.loads(offset())
    del unnamed["queue"]
    batch(tmp_path, 3, json.dumps(unnamed))
    finish(tmp_path, 3)
    assert positions_of(str(tmp_path), "events")[0] == SECOND


def test_an_archive_has_its_checkpoint_in_its_folder(tmp_path: Path) -> None:
    checkpoint = tmp_path / "_hqueue" / "checkpoint"
    checkpoint.mkdir(parents=True)
    batch(checkpoint, 3, offset())
    finish(checkpoint, 3)
    assert positions_of(str(tmp_path), "events") == {0: SECOND, 11: MessageID(0)}
    assert positions_of(tmp_path.as_uri(), "events")[0] == SECOND


def test_what_is_no_checkpoint_of_the_queue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="give the query's checkpointLocation"):
        positions_of(str(tmp_path), "events")
    batch(tmp_path, 0, offset("others"))
    finish(tmp_path, 0)
    with pytest.raises(InvalidInputError, match="does not read the queue") as caught:
        positions_of(str(tmp_path), "events")
    assert caught.value.facts["queues"] == ["others"]


def test_a_uri_leads_to_a_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch(tmp_path, 3, offset())
    assert positions_of(tmp_path.as_uri(), "events")[0] == FIRST
    remote = pyarrow.fs.LocalFileSystem(), str(tmp_path)
    with monkeypatch.context() as patched:
        away = type("Away", (), {"from_uri": lambda uri: remote})
        patched.setattr(pyarrow.fs, "FileSystem", away)
        assert positions_of("hdfs://name/checkpoint", "events")[0] == FIRST
        finish(tmp_path, 3)
        assert positions_of("hdfs://name/checkpoint", "events")[0] == SECOND
        (tmp_path / "offsets" / "3").unlink()
        with pytest.raises(InvalidInputError, match="there is no checkpoint"):
            positions_of("hdfs://name/checkpoint", "events")
    with pytest.raises(InvalidInputError, match="copy the folders offsets and commits"):
        positions_of("unknown://name/checkpoint", "events")
