"""A KDC that is away or silent: what clients of both faces say, and when."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from hqueue import Settings, StoreUnavailableError
from hqueue.connecting import open_store
from hqueue.errors import Outcome
from hqueue.net.kdc import KdcUnavailableError, log_answered, log_unavailable
from hqueue.zookeeper import ZooKeeperStore
from tests.support.command_line import run_here
from tests.support.keytabs import keytab
from tests.support.memory.zookeeper import MemoryZooKeeper

CONNECT_MS, OPERATION_MS = 500, 1_500
LATE_S = 8.0
"""Longer than an operation may take, and less than the library waits for a silent KDC."""


class Realm:
    """A realm of its own: a process logs each realm's fault once.

    Args:
        folder: where its files lie.
        is_silent: whether its KDC takes connections and says nothing; else nothing listens there.
    """

    def __init__(self, folder: Path, *, is_silent: bool) -> None:
        self.name = f"R{uuid.uuid4().hex[:8].upper()}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.kdc = f"127.0.0.1:{self._listener.getsockname()[1]}"
        if not is_silent:
            self._listener.close()
        self.config = folder / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\n default_realm = {self.name}\n udp_preference_limit = 1\n"
            f" dns_lookup_kdc = false\n[realms]\n {self.name} = {{\n  kdc = {self.kdc}\n }}\n"
        )
        self.keytab = folder / "keytab"
        self.keytab.write_bytes(keytab(f"app@{self.name}"))

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(params=["away", "silent"])
def realm(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Realm]:
    with contextlib.closing(Realm(tmp_path, is_silent=request.param == "silent")) as realm:
        monkeypatch.setenv("KRB5_CONFIG", str(realm.config))
        yield realm


@pytest.fixture
def given(realm: Realm) -> Iterator[dict[str, object]]:
    """Settings of a client that proves itself to HBase and ZooKeeper. Both listen."""
    with socket.create_server(("127.0.0.1", 0)) as hbase, MemoryZooKeeper() as zookeeper:
        yield {
            "hbase_authentication": "kerberos",
            "hbase_masters": f"127.0.0.1:{hbase.getsockname()[1]}",
            "zookeeper": f"127.0.0.1:{zookeeper.port}",
            "zookeeper_authentication": "kerberos",
            "kerberos_keytab": str(realm.keytab),
            "kerberos_config": str(realm.config),
            "connect_timeout_ms": CONNECT_MS,
            "operation_timeout_ms": OPERATION_MS,
        }


@pytest.mark.parametrize("face", ["HBase", "HBase by asyncio", "ZooKeeper"])
def test_an_operation_says_once_what_it_waits_for_and_ends_with_an_error_that_names_it(
    realm: Realm, given: dict[str, object], face: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(**given)  # type: ignore[arg-type]

    def ask() -> None:
        if face == "ZooKeeper":
            with contextlib.closing(ZooKeeperStore(settings)) as records:
                records.records.read(["/"])
            return
        with contextlib.closing(open_store(settings)) as store:
            if face == "HBase":
                store.tables.list()
            else:
                asyncio.run(store.async_log("any").newest(0, 0))

    begun_s = time.time()
    with (
        caplog.at_level(logging.WARNING, "hqueue"),
        pytest.raises(StoreUnavailableError, match="the KDC can't be reached") as caught,
    ):
        ask()
    assert time.time() - begun_s < LATE_S
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert (caught.value.facts["realm"], caught.value.facts["kdc"]) == (realm.name, realm.kdc)
    [line] = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert f"realm: {realm.name}; kdc: {realm.kdc}" in line.getMessage()
    assert line.created - begun_s < CONNECT_MS / 1e3 + 1


@pytest.mark.parametrize("command", [["list"], ["access", "list"]])
def test_a_command_says_on_stderr_what_it_waits_for_and_ends(
    realm: Realm, given: dict[str, object], command: list[str]
) -> None:
    environ = {f"HQUEUE_{name.upper()}": str(value) for name, value in given.items()}
    begun_s = time.monotonic()
    code, _, err = run_here(command, b"", {**environ, "KRB5_CONFIG": str(realm.config)})
    assert time.monotonic() - begun_s < LATE_S
    assert code == 3
    waits, ends = [line for line in err.splitlines() if "KDC can't be reached" in line]
    assert "trying again" in waits
    assert realm.kdc in waits
    assert "trying again" not in ends
    assert realm.kdc in err.partition(ends)[2] + ends


def test_a_kdc_that_answers_again_is_logged_once(
    realm: Realm, caplog: pytest.LogCaptureFixture
) -> None:
    principal = f"app@{realm.name}"
    with caplog.at_level(logging.WARNING, "hqueue"):
        for _ in range(2):
            log_unavailable(KdcUnavailableError("silent", principal))
        log_answered("other@ELSEWHERE")
        assert len(caplog.records) == 1
        log_answered(principal)
        log_answered(principal)
    assert len(caplog.records) == 2
    assert f"the KDC of the realm {realm.name} answers again" in caplog.messages[-1]
