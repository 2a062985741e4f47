"""``hqueue access check`` over memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hqueue import Client
from hqueue.cli.commands import access
from hqueue.cli.session import Session
from tests.support.backends import MemoryBackend


class MemorySession(Session):
    """A session whose client is connected to memory."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client


@pytest.mark.parametrize(
    ("principal", "code", "text"),
    [
        (
            "ops",
            0,
            "ops is an administrator, by this machine's settings of the worker and the hub.",
        ),
        ("root-1", 0, "by this machine's settings of the hub."),
        ("app", 1, "No rule allows it: see hqueue access grant."),
    ],
)
def test_an_administrator_needs_no_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, principal: str, code: int, text: str
) -> None:
    settings = tmp_path / "hqueue.toml"
    settings.write_text('[hub]\nadministrators = "ops,root-*"\n[worker]\nadministrators = "ops"\n')
    monkeypatch.setenv("HQUEUE_CONFIG", str(settings))
    monkeypatch.setenv("HQUEUE_LOCAL_HOME", str(tmp_path / "none"))
    app = typer.Typer()
    access.register(app)
    with MemoryBackend().connect() as client:
        ended = CliRunner().invoke(
            app, ["access", "check", principal, "publish", "q"], obj=MemorySession(client)
        )
    assert ended.exit_code == code, ended.output
    assert text in ended.stderr
