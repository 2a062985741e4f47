"""Which targets a copy continues in."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import cast

import pytest

import hqueue
from hqueue import InvalidInputError
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.queue_copy import check_target
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair
from tests.support.memory.zookeeper import MemoryZooKeeper


class LocalFolder:
    """What a checkpoint's `Folder` can do, without Spark."""

    def __init__(self, path: Path) -> None:
        self.uri = str(path)
        self._path = path

    def names(self, name: str) -> list[str]:
        there = self._path / name
        return [each.name for each in there.iterdir()] if there.exists() else []

    def read(self, name: str) -> str | None:
        there = self._path / name
        return there.read_text() if there.exists() else None


def done(path: Path, number: int, **offset: object) -> None:
    """A round that is done."""
    for name, text in (
        (f"offsets/{number}", f"v1\n{{}}\n{json.dumps(offset)}"),
        (f"commits/{number}", "v1"),
    ):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)


def test_a_target_that_was_truncated_or_created_again_is_refused(tmp_path: Path) -> None:
    checkpoint = cast(Folder, LocalFolder(tmp_path))
    with (
        contextlib.closing(GatewayPair(MemoryCluster())) as pair,
        MemoryZooKeeper() as zookeeper,
        hqueue.connect(
            gateways=[*map(str, pair.gateways)], zookeeper=f"127.0.0.1:{zookeeper.port}"
        ) as client,
    ):
        queue = client.create_queue("target", partitions=1)
        check_target(queue, checkpoint)
        (tmp_path / "metadata").write_text(json.dumps({"id": "stream"}))
        check_target(queue, checkpoint)
        # The source had no messages yet: nothing can be missing.
        done(tmp_path, 0, partitions={"0": [7, 0]}, start={"0": [7, 0]})
        check_target(queue, checkpoint)

        done(tmp_path, 1, partitions={"0": [9, 2]})
        queue.claim_epoch("spark-write.copy.stream", 1)
        check_target(queue, checkpoint)
        client.truncate_queue("target")
        with pytest.raises(InvalidInputError, match="give another checkpoint to copy all"):
            check_target(queue, checkpoint)


def test_a_first_round_with_messages_counts(tmp_path: Path) -> None:
    class Empty:
        name = "target"

        def current_epoch(self, _: str) -> None:
            return None

    (tmp_path / "metadata").write_text(json.dumps({"id": "stream"}))
    done(tmp_path, 0, partitions={"0": [9, 2]}, start={"0": [0, 0]})
    with pytest.raises(InvalidInputError, match="created again"):
        check_target(cast(hqueue.Queue, Empty()), cast(Folder, LocalFolder(tmp_path)))
