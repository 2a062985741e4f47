"""The settings and the certificates that pages show: each setting exists and fits the others, and
the commands for certificates make good ones.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import hqueue
from hqueue.net.contexts import TlsContexts
from hqueue.net.own_certificate import shake_hands
from hqueue.net.tls_files import TlsFiles
from hqueue.settings.loading import load_role_settings
from hqueue_workers.console.settings import ConsoleSettings
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.node.settings import WorkerSettings

ROOT = Path(__file__).parents[2]
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if TOML.search(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_settings_that_a_page_shows_can_be_read(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(TOML.findall(page.read_text(encoding="utf-8"))):
        path = tmp_path / f"{number}.toml"
        path.write_text(block, encoding="utf-8")
        environ = {"HQUEUE_CONFIG": str(path), "HQUEUE_LOCAL_HOME": str(tmp_path)}
        hqueue.Settings.load(environ=environ)
        load_role_settings(WorkerSettings, "worker", environ=environ)
        load_role_settings(HubSettings, "hub", environ=environ)
        load_role_settings(ConsoleSettings, "console", environ=environ)


def test_the_certificate_that_the_page_on_securing_a_cluster_makes_is_good(tmp_path: Path) -> None:
    blocks = SHELL.findall((ROOT / "docs" / "secure-a-cluster.md").read_text(encoding="utf-8"))
    [block] = [each for each in blocks if "openssl req" in each]
    made = subprocess.run(
        ["sh", "-e", "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    files = TlsFiles(*(str(tmp_path / name) for name in ("ca.pem", "hub1.pem", "hub1.key")))
    client, server = (TlsContexts(files, serves=serves).current() for serves in (False, True))
    seen, _ = shake_hands(client, server, "hub1.example.com")
    assert (("commonName", "hub"),) in seen["subject"]
