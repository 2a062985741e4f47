"""The examination as a whole: wrong settings, checks that hang or fail, the command."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue.doctor import Finding, Level, Subject, examine
from hqueue.doctor.examination import Check
from hqueue.doctor.findings import FACT_LENGTH_MAX, Found, of_error, ok, wrong
from hqueue.errors import (
    AuthenticationError,
    Outcome,
    RequestRefusedError,
    SettingsError,
    StoreUnavailableError,
)
from tests.support.backends import MemoryBackend
from tests.support.command_line import run_here
from tests.support.hubs import HubThread
from tests.support.keytabs import keytab
from tests.support.memory.zookeeper import MemoryZooKeeper

SOON_S = 8.0


@pytest.fixture
def silent_kdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A KDC that takes connections and says nothing, and a keytab of its realm."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        (tmp_path / "krb5.conf").write_text(
            "[libdefaults]\n default_realm = TEST\n udp_preference_limit = 1\n"
            " dns_lookup_kdc = false\n[realms]\n TEST = {\n"
            f"  kdc = 127.0.0.1:{listener.getsockname()[1]}\n }}\n"
        )
        (tmp_path / "keytab").write_bytes(keytab("app@TEST"))
        monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
        yield


def bounded() -> hqueue.Settings:
    return hqueue.Settings(operation_timeout_ms=300)


def well(subject: Subject) -> Iterator[Finding]:
    yield ok("well", f"bounded by {subject.settings.operation_timeout_ms} ms")


WELL = Check("well", well)


def test_wrong_settings_end_it() -> None:
    def load() -> hqueue.Settings:
        raise SettingsError("unknown setting", setting="gatways", file="hqueue.toml", line=3)

    [found] = examine(load, (WELL,))
    assert (found.check, found.level) == ("settings", Level.WRONG)
    assert found.found == "unknown setting [setting=gatways, file=hqueue.toml, line=3]"


def test_a_check_that_hangs_is_left_and_the_others_go_on() -> None:
    over = threading.Event()

    def hangs(subject: Subject) -> Iterator[Finding]:
        yield ok("hangs", "so far")
        over.wait(30)

    begun_s = time.monotonic()
    found = [*examine(bounded, (Check("hangs", hangs), WELL))]
    over.set()
    assert time.monotonic() - begun_s < 10
    assert [(each.check, each.level) for each in found] == [
        ("settings", Level.OK), ("hangs", Level.OK), ("hangs", Level.WRONG), ("well", Level.OK),
    ]  # fmt: skip
    assert found[-1].found == "bounded by 150 ms"


def test_an_error_in_a_check_is_a_finding() -> None:
    def fails(subject: Subject) -> Iterator[Finding]:
        yield ok("fails", "so far")
        raise StoreUnavailableError("no answer", outcome=Outcome.NOT_APPLIED)

    found = [*examine(bounded, (Check("fails", fails), WELL))]
    assert [each.level for each in found] == [Level.OK, Level.OK, Level.WRONG, Level.OK]


def test_what_builds_on_a_check_that_failed_is_one_line() -> None:
    ran: list[str] = []

    def fails(subject: Subject) -> Found:
        yield wrong("fails", "no ticket", "get one")
        return "this client has no ticket"

    def builds(subject: Subject) -> Found:
        ran.append("builds")
        yield ok("builds", "never")
        return None

    def builds_on_that(subject: Subject) -> Iterator[Finding]:
        ran.append("builds on that")
        yield ok("last", "never")

    checks = (
        Check("fails", fails),
        Check("builds", builds, lambda subject: (fails,)),
        WELL,
        Check("last", builds_on_that, lambda subject: (builds,)),
    )
    found = [*examine(bounded, checks)]
    assert [(each.check, each.level) for each in found] == [
        ("settings", Level.OK), ("fails", Level.WRONG), ("fails", Level.WARNING), ("well", Level.OK)
    ]  # fmt: skip
    assert found[2].found == "not examined, because this client has no ticket: builds, last"
    assert ran == []


def test_all_wrong_settings_are_found_with_their_places(tmp_path: Path) -> None:
    settings = tmp_path / "hqueue.toml"
    settings.write_text(
        'zookeper = "host:2181"\nconnect_timeout_ms = 0\nzookeeper_root = "/"\ntls = true\n'
        'hbase_authentication = "kerberoz"\nkerberos_keytab = "/k"\n'
    )
    environ = {"HQUEUE_CONFIG": str(settings), "HQUEUE_TLS_KEY": "/key"}
    code, out, _ = run_here(["doctor", "--json"], b"", environ)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert {(line["check"], line["state"]) for line in lines} == {("settings", "wrong")}
    found = [line["found"] for line in lines]
    assert [text.partition("[")[0].partition(":")[0].strip() for text in found] == [
        "unknown setting",
        "this must be a whole number in its range",
        "hbase_authentication must be 'simple' or 'kerberos' or 'token'",
        "zookeeper_root must be a ZooKeeper path, such as /hqueue",
        "tls needs tls_ca",
        "tls needs tls_certificate",
        "tls_key needs tls_certificate, the certificate that belongs to the key",
    ], "and nothing of the keytab, which is right as soon as the authentication is"
    places = [re.search(r"line=(\d)|variable=(\w+)", text) for text in found]
    assert [place and (place[1] or place[2]) for place in places] == [
        "1", "2", "5", "3", "4", "4", "HQUEUE_TLS_KEY"
    ]  # fmt: skip


@pytest.mark.usefixtures("silent_kdc")
def test_without_a_ticket_what_needs_one_is_one_line(tmp_path: Path) -> None:
    with MemoryZooKeeper() as zookeeper:
        environ = {
            "HQUEUE_LOCAL_HOME": str(tmp_path), "HQUEUE_OPERATION_TIMEOUT_MS": "1000",
            "HQUEUE_ZOOKEEPER": f"127.0.0.1:{zookeeper.port}",
            "HQUEUE_HBASE_AUTHENTICATION": "kerberos",
            "HQUEUE_ZOOKEEPER_AUTHENTICATION": "kerberos",
            "HQUEUE_KERBEROS_KEYTAB": str(tmp_path / "keytab"),
            "KRB5_CONFIG": str(tmp_path / "krb5.conf"),
        }  # fmt: skip
        _, out, _ = run_here(["doctor", "--json", "--queue", "q"], b"", environ)
    lines = [json.loads(line) for line in out.splitlines()]
    kerberos = [line for line in lines if line["check"] == "kerberos" and line["state"] != "ok"]
    assert [line["state"] for line in kerberos] == ["wrong", "warning"]
    assert "the KDC can't be reached" in kerberos[0]["found"]
    expected = "not examined, because this client has no ticket: zookeeper, hbase, hubs"
    assert kerberos[1]["found"] == expected
    rest = [line for line in lines if line["check"] in ("zookeeper", "hbase", "hubs", "clock")]
    assert [line["state"] for line in rest] == ["ok"], "ZooKeeper can be reached without a ticket"


@pytest.mark.parametrize("setting", ["zookeeper", "hbase_masters", "gateways"])
def test_a_hub_where_another_server_should_be_is_named_soon(setting: str, tmp_path: Path) -> None:
    with MemoryBackend().connect() as client, MemoryZooKeeper() as zookeeper:
        client.create_queue("q", partitions=1)
        with HubThread(client, "q") as hub:
            port = hub.address.port
            given = {"zookeeper": f"127.0.0.1:{zookeeper.port}", setting: str(hub.address)}
            if setting == "gateways":
                given[setting] = f"{hub.address}/{port}"
            environ = {f"HQUEUE_{name.upper()}": value for name, value in given.items()}
            begun_s = time.monotonic()
            _, out, _ = run_here(
                ["doctor", "--json"], b"", {"HQUEUE_LOCAL_HOME": str(tmp_path), **environ}
            )
            took_s = time.monotonic() - begun_s
    lines = [json.loads(line) for line in out.splitlines()]
    check = "zookeeper" if setting == "zookeeper" else "hbase"
    wrong_lines = [line for line in lines if line["state"] == "wrong"]
    if setting == "gateways":  # A hub is a Thrift server, as a gateway is.
        assert {line["check"] for line in wrong_lines} == {check}
        return
    assert took_s < SOON_S
    [line] = wrong_lines
    assert line["check"] == check
    assert f"{hub.address} can't be reached: a Thrift server answers there" in line["found"]


def test_each_kind_of_error_has_its_advice() -> None:
    errors = (
        AuthenticationError("refused"),
        RequestRefusedError("refused"),
        StoreUnavailableError("away", outcome=Outcome.NOT_APPLIED),
        SettingsError("wrong"),
    )
    advices = [of_error("check", error).advice for error in errors]
    assert len({*advices}) == len(errors)
    assert all(advices)


def test_long_facts_are_cut() -> None:
    error = RequestRefusedError("refused", answer="x" * 10_000 + "\nand more")
    assert len(of_error("check", error).found) < FACT_LENGTH_MAX + 50


def test_the_command_says_what_is_wrong_and_fails(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "HQUEUE_LOCAL_HOME": str(tmp_path), "COLUMNS": "120"}
    away = {"HQUEUE_ZOOKEEPER": "127.0.0.1:1", "HQUEUE_OPERATION_TIMEOUT_MS": "500"}
    code, out, err = run_here(["doctor", "--json", "--hubs", "127.0.0.1:1"], b"", home | away)
    lines = [*map(json.loads, out.splitlines())]
    assert code == 1
    assert all({*line} == {"check", "state", "found", "advice"} for line in lines)
    states = {line["check"]: line["state"] for line in lines}
    assert states["settings"] == "ok"
    assert states["hubs"] == "wrong"
    zookeeper = [line for line in lines if line["check"] == "zookeeper"]
    assert [line["state"] for line in zookeeper] == ["wrong", "warning"]
    assert zookeeper[1]["found"].endswith("does not serve this client: zookeeper, hbase")
    assert all(line["advice"] for line in lines if line["state"] != "ok")
    assert f"{sum(line['state'] == 'wrong' for line in lines)} wrong" in err


def test_the_command_names_the_line_of_a_wrong_setting(tmp_path: Path) -> None:
    settings = tmp_path / "hqueue.toml"
    settings.write_text('zookeper = "host:2181"')
    code, out, _ = run_here(["doctor"], b"", {"HQUEUE_CONFIG": str(settings)})
    assert code == 1
    assert b"line=1" in out
