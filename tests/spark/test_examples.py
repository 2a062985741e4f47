"""The programs in ``examples/`` that need Spark run as they are, each with a Spark of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hqueue
from hqueue import Message

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.thorough("a Spark of its own, where other tests use Spark the same way, 30 s")
@pytest.mark.usefixtures("spark_environment")
def test_messages_are_counted_by_topic_where_no_environment_is_activated(
    make_queue: Callable[..., hqueue.Queue],
) -> None:
    queue = make_queue(3)
    queue.put([Message("clicks", b"a"), Message("views", b"b")], partition=0)
    queue.put([Message("clicks", b"c")] * 3, partition=2)
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_")}
    found = [each for each in own["PATH"].split(os.pathsep) if not each.startswith(sys.prefix)]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "spark_count.py"), queue.name],
        env={**own, "PATH": os.pathsep.join(found)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["clicks: 4", "views: 1"]
