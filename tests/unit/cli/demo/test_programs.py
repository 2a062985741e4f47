"""The demo asks for what it needs before it begins, and leaves nothing of a run that failed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hqueue
from hqueue import SettingsError
from hqueue.cli.demo import command
from hqueue.cli.demo.command import _program, demo
from hqueue.cli.session import Session
from hqueue.errors import StoreUnavailableError
from hqueue.runtime.clock import SYSTEM_CLOCK
from tests.support.backends import MemoryBackend


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend(SYSTEM_CLOCK).apart(session_timeout_ms=5_000).connect() as connected:
        yield connected


@pytest.fixture
def context(client: hqueue.Client, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the demo runs in, with a local server that runs."""
    session = Session()
    monkeypatch.setattr(Session, "client", client)
    monkeypatch.setattr(session, "close", lambda: None)
    server = SimpleNamespace(zookeeper=client.settings.zookeeper, gateways=())
    monkeypatch.setattr(command, "start_server", lambda: server)
    return SimpleNamespace(obj=session)


def test_a_worker_that_is_not_installed_is_told_before_anything_is_begun(
    context: Any, client: hqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_reached() -> object:
        raise AssertionError

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if "prometheus" in name else find(name)
    )
    monkeypatch.setattr(command, "start_server", not_reached)
    with pytest.raises(SettingsError, match="\\[worker\\]"):
        demo(context, seconds=1, partitions=2)
    assert client.list_queues() == []


def test_a_demo_that_fails_leaves_no_queue(
    context: Any,
    client: hqueue.Client,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: object) -> None:
        assert len(client.list_queues()) == 1
        raise StoreUnavailableError("HBase went away")

    monkeypatch.setattr(command.Demo, "run", fail)
    with pytest.raises(StoreUnavailableError):
        demo(context, seconds=1, partitions=2)
    assert client.list_queues() == []
    assert "Deleted demo-" in capsys.readouterr().err


def test_the_next_commands_are_named_as_a_shell_finds_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hqueue").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _program() == "hqueue"
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert _program() == str(tmp_path / "hqueue")
