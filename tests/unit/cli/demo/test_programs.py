"""The demo asks for what it needs before it begins, and leaves nothing of a run that failed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import hqueue
from hqueue import SettingsError
from hqueue.cli.demo.command import demo, demo_queue, program
from hqueue.cli.session import Session
from hqueue.errors import StoreUnavailableError
from hqueue.runtime.clock import SYSTEM_CLOCK
from tests.support.backends import MemoryBackend


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend(SYSTEM_CLOCK).apart(session_timeout_ms=5_000).connect() as connected:
        yield connected


def test_a_worker_that_is_not_installed_is_told_before_anything_is_begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setenv("HQUEUE_LOCAL_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # No server could be started.
    with pytest.raises(SettingsError, match="\\[worker\\]"):
        demo(SimpleNamespace(obj=Session()), seconds=1, partitions=2)
    assert not [*tmp_path.iterdir()]


def test_a_demo_that_fails_leaves_no_queue(
    client: hqueue.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(queue: hqueue.Queue) -> None:
        assert [each.name for each in client.list_queues()] == [queue.name]
        raise StoreUnavailableError("HBase went away")

    with pytest.raises(StoreUnavailableError), demo_queue(client, 2) as queue:
        fail(queue)
    assert client.list_queues() == []
    assert "Deleted demo-" in capsys.readouterr().err


def test_the_next_commands_are_named_as_a_shell_finds_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hqueue").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == "hqueue"
    monkeypatch.setenv("PATH", "/nowhere")
    assert program(str(tmp_path / "python")) == str(tmp_path / "hqueue")
