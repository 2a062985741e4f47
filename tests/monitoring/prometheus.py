"""A real Prometheus, and promtool: Debian's package ``prometheus`` has both."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.monitoring.files import ROOT
from tests.monitoring.roles import free_port, page
from tests.support.waiting import wait_for

__all__ = ["RULES", "Prometheus", "program", "scraping"]

RULES = ROOT / "deploy/prometheus/hqueue.rules.yaml"
ENDS_WITHIN_S = 60.0


def program(name: str) -> str:
    """The path of a program of Prometheus.

    Raises:
        AssertionError: the program is not installed.
    """
    found = shutil.which(name)
    assert found, f"{name} is not installed: on Debian, apt-get install prometheus"
    return found


class Prometheus:
    """A running Prometheus.

    Args:
        port: the port of its API.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an expression now.

        Raises:
            AssertionError: Prometheus refuses the expression.
        """
        return list(self._get("query", query=expression)["result"])

    def rules(self) -> list[dict[str, Any]]:
        """All rules, with their health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, method: str, **arguments: str) -> dict[str, Any]:
        asked = urllib.parse.urlencode(arguments)
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._port}/api/v1/{method}?{asked}", timeout=30
            ) as answer:
                document = json.load(answer)
        except urllib.error.HTTPError as exc:
            raise AssertionError(f"{arguments}: {exc.read().decode()}") from exc
        assert document["status"] == "success", document
        return dict(document["data"])


@contextlib.contextmanager
def scraping(targets: Mapping[str, int], folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes ports of this machine every second.

    Args:
        targets: the ports by the names of the jobs.
        folder: where it keeps what it has.
    """
    jobs = [
        {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for job, port in targets.items()
    ]
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": jobs,
    }
    path, port = folder / "prometheus.yml", free_port()
    path.write_text(json.dumps(settings), encoding="utf-8")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program("prometheus"),
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(lambda: page(port, "/-/ready")[0] == 200, "Prometheus is ready")
            yield Prometheus(port)
        finally:
            process.terminate()
            process.wait(ENDS_WITHIN_S)
