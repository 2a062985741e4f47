"""Probes of containers: what they find out about a role, in clear and by TLS."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from hqueue import Settings
from hqueue.net.security import PortSecurity
from hqueue.rpc.pages import Answer, HealthServer
from hqueue_workers.probe import main, probe
from tests.support.certificates import Certificates

PREFIX = {"worker": "HQUEUE_WORKER", "hub": "HQUEUE_HUB"}


def asked(
    role: str, status: int, settings: dict[str, str] | None = None, *, alive: bool = False
) -> str:
    """What a probe says of a role that answers so, with these settings of the connection."""
    given = settings or {}

    async def page() -> Answer:
        return Answer(status, "application/json", b'{"status": "so"}\n')

    async def run() -> str:
        server = HealthServer({"/health": page})
        guard = None
        if given:
            security = PortSecurity(Settings(tls=True, **given))  # type: ignore[arg-type]
            guard = security.guard("metrics", "*", "metrics_principals")
        server.listen("127.0.0.1", 0, guard)
        environ = {
            f"{PREFIX[role]}_METRICS_HOST": "0.0.0.0",
            f"{PREFIX[role]}_METRICS_PORT": str(server.port),
            **{f"HQUEUE_{name.upper()}": value for name, value in given.items()},
            **({"HQUEUE_TLS": "true"} if given else {}),
        }
        try:
            return await asyncio.to_thread(probe, role, alive=alive, environ=environ)
        finally:
            server.close()

    return asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("role", PREFIX)
def test_a_role_that_is_ready_is_well(role: str) -> None:
    assert asked(role, 200) == ""


def test_a_role_that_waits_is_alive_and_not_ready() -> None:
    assert asked("worker", 503) == '503: {"status": "so"}'
    assert asked("worker", 503, alive=True) == ""


def test_a_port_with_tls_is_asked_with_the_own_certificate(tmp_path: Path) -> None:
    given = Certificates(tmp_path).of("worker")
    files = {name: str(given[name]) for name in ("tls_ca", "tls_certificate")}
    assert asked("worker", 200, files) == ""
    assert asked("hub", 503, files) == '503: {"status": "so"}'


def test_a_role_that_is_away_is_not_alive(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # Bound, and nobody listens.
        taken.bind(("127.0.0.1", 0))
        environ = {"HQUEUE_WORKER_METRICS_PORT": str(taken.getsockname()[1])}
        assert "does not answer" in probe("worker", alive=True, environ=environ)


def test_a_wrong_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HQUEUE_HUB_METRICS_PORT", "0")
    assert main(["hub"]) == 2
    assert "a probe needs a port that is not 0" in capsys.readouterr().err
