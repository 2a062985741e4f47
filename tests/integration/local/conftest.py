"""Homes of their own for the tests that start, kill and stop servers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hqueue import local
from hqueue.local.process import marked_processes


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home, which is the default one for the test and its subprocesses.

    After the test, whatever still runs in it is ended; the user's own server is never touched.
    """
    # A short path: ZooKeeper and HDFS build long ones below it.
    with tempfile.TemporaryDirectory(prefix="hqueue-home-") as folder:
        path = Path(folder).resolve()
        monkeypatch.setenv("HQUEUE_LOCAL_HOME", str(path))
        yield path
        local.stop(orderly_s=0)
        assert marked_processes(path) == []
