"""Hubs in processes of their own, on the standalone server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping

from hqueue import local

__all__ = ["HubProcess", "hub_environment"]

END_S = 240.0
SESSION_MS = 4_000


def hub_environment(
    server: local.LocalServer, environment: Mapping[str, str], store: str
) -> dict[str, str]:
    """The environment of hubs whose topics' metadata lies in a store."""
    return {
        **environment,
        "HQUEUE_GATEWAYS": str(server.gateways[0]),
        "HQUEUE_ZOOKEEPER": server.zookeeper,
        "HQUEUE_METADATA_STORE": store,
        "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class HubProcess:
    """``hqueue hub`` in a process of its own. It is killed with the block it was started for."""

    def __init__(self, queue: str, environment: Mapping[str, str]) -> None:
        self.port, self.metrics_port = _free_port(), _free_port()
        self.address = f"127.0.0.1:{self.port}"
        own = {
            "HQUEUE_HUB_HOST": "127.0.0.1",
            "HQUEUE_HUB_PORT": str(self.port),
            "HQUEUE_HUB_METRICS_PORT": str(self.metrics_port),
            "HQUEUE_HUB_API_PORT": "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hqueue.cli", "hub", queue], env={**environment, **own}
        )

    def __enter__(self) -> HubProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        self.kill()

    def page(self, path: str) -> bytes | None:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.metrics_port}{path}", timeout=30
            ) as page:
                return bytes(page.read())
        except OSError:
            return None

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """What a crash is."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        self.signal(signal.SIGTERM)
        return self._process.wait(END_S)
