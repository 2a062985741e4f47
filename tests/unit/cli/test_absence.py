"""What listens at an address is recognised by its answers."""

from __future__ import annotations

import contextlib
import http.server
import logging
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hqueue import Settings
from hqueue.cli.absence import hbase_absence
from hqueue.net.endpoints import Met, meet
from hqueue.settings.addresses import Address
from tests.support.backends import MemoryBackend
from tests.support.command_line import run_here
from tests.support.hubs import HubThread
from tests.support.registries import NOWHERE

BOUND_S = 2.4


@contextlib.contextmanager
def saying(greeting: bytes | None) -> Iterator[Address]:
    """A server that says this as soon as somebody comes; nothing if None, and ends the connection
    if that is empty.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        opened: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    opened.append(listening.accept()[0])
                    if greeting is not None:
                        opened[-1].sendall(greeting)
                        opened[-1].shutdown(socket.SHUT_WR)

        threading.Thread(target=serve, daemon=True).start()
        yield Address("127.0.0.1", listening.getsockname()[1])
        for each in opened:
            each.close()


@contextlib.contextmanager
def web_server() -> Iterator[Address]:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Address("127.0.0.1", server.server_address[1])
        server.shutdown()


@pytest.mark.parametrize(
    ("greeting", "met"),
    [
        (b"SSH-2.0-OpenSSH_9\r\n", Met.SSH),
        (b"\x15\x03\x01\x00\x02\x02\x46", Met.TLS),
        (b"Zookeeper version: 3.8.4", Met.ZOOKEEPER),
        (b"srvr is not executed because it is not in the whitelist.", Met.ZOOKEEPER),
        (b"\0\0\0\x40Expected HEADER=HBas but received HEADER=GET ", Met.HBASE),
        (b"\x80\x01\x00\x03\0\0\0\x06hqueue", Met.THRIFT),
        (b"\0\0\0\x20\x80\x01\x00\x03\0\0\0\x06hqueue", Met.THRIFT),
        (b"220 mail ESMTP", Met.OTHER),
        (b"", Met.OTHER),
        (None, Met.SILENT),
    ],
)
@pytest.mark.parametrize("wanted", [None, Met.HUB])
def test_a_server_is_known_by_what_it_says(
    greeting: bytes | None, met: Met, wanted: Met | None
) -> None:
    with saying(greeting) as address:
        began_s = time.monotonic()
        assert meet(address, BOUND_S, wanted) is met
        assert time.monotonic() - began_s < 2 * BOUND_S


def test_a_slow_server_is_not_taken_for_another_one() -> None:
    """As a ZooKeeper whose host is busy: it ends connections whose question it can't read."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        opened: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = listening.accept()[0]
                    opened.append(connection)
                    if connection.recv(4) != b"srvr":
                        connection.shutdown(socket.SHUT_WR)

        threading.Thread(target=serve, daemon=True).start()
        address = Address("127.0.0.1", listening.getsockname()[1])
        assert meet(address, BOUND_S, Met.ZOOKEEPER) is Met.SILENT
        assert meet(address, BOUND_S) is Met.OTHER
        for each in opened:
            each.close()


def test_a_web_server_is_known_and_where_nobody_listens() -> None:
    with web_server() as address:
        assert meet(address, BOUND_S) is Met.WEB
    assert meet(NOWHERE, BOUND_S) is Met.NOTHING


def test_a_hub_that_is_well_is_known_by_a_call_and_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with MemoryBackend().connect() as client:
        client.create_queue("q", partitions=1)
        with HubThread(client, "q") as hub:
            caplog.set_level(logging.WARNING)
            assert meet(hub.address, BOUND_S, Met.HUB) is Met.HUB
            assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []
            assert meet(hub.address, BOUND_S) is Met.THRIFT


@pytest.mark.parametrize("setting", ["zookeeper", "hbase_masters", "gateways"])
def test_a_wrong_server_is_named_with_what_it_is_and_where_its_address_is_from(
    setting: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with web_server() as address:
        value = f"{address}/{address.port}" if setting == "gateways" else str(address)
        variable = f"HQUEUE_{setting.upper()}"
        monkeypatch.setenv(variable, value)
        settings = Settings.load()
        began_s = time.monotonic()
        hbase_absence(settings).say(trying=True)
        assert time.monotonic() - began_s < BOUND_S
        said = capsys.readouterr().err
        assert f"(from {variable}): {address} is a web server" in said
        hbase_absence(settings, [setting]).say(trying=True)
        assert f"(from --{setting.replace('_', '-')}): {address} is" in capsys.readouterr().err


def test_one_master_that_answers_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    with saying(b"Expected HEADER=HBas but received HEADER=GET ") as master:
        hbase_absence(Settings(zookeeper=str(NOWHERE), hbase_masters=(NOWHERE, master))).say(
            trying=True
        )
    assert capsys.readouterr().err == ""


def test_what_speaks_tls_is_not_taken_for_another_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with saying(b"") as address:
        settings = Settings(zookeeper=str(address), zookeeper_tls=True)
        hbase_absence(settings).say(trying=True)
        assert capsys.readouterr().err == ""
        hbase_absence(replace(settings, zookeeper_tls=False)).say(trying=True)
        assert f"{address} is a server of another protocol" in capsys.readouterr().err
    hbase_absence(replace(settings, zookeeper=str(NOWHERE))).say(trying=True)
    assert "no ZooKeeper answers" in capsys.readouterr().err


@pytest.mark.parametrize("listens", ["nothing said", "web"])
@pytest.mark.parametrize("option", ["--zookeeper", "--hbase-masters", "--gateways"])
def test_a_read_ends_with_3_and_by_the_bound_on_operations_whatever_listens(
    listens: str, option: str, tmp_path: Path
) -> None:
    with saying(None) if listens == "nothing said" else web_server() as address:
        value = f"{address}/{address.port}" if option == "--gateways" else str(address)
        bound = ("--operation-timeout-ms", "2000")
        began_s = time.monotonic()
        code, _, err = run_here(
            [option, value, *bound, "scan", "q"], b"", {"HQUEUE_LOCAL_HOME": str(tmp_path)}
        )
    assert time.monotonic() - began_s < 6, "requests alone have 15 s"
    assert code == 3, err
    assert f"{address} is a" in err
    assert not err.rstrip().endswith("outcome='unknown']")


@pytest.mark.parametrize("way", ["option", "variable", "file"])
def test_a_hub_that_refuses_ends_a_command_with_3_and_in_time_whatever_sets_the_bound(
    way: str, tmp_path: Path
) -> None:
    option = ["--operation-timeout-ms", "1000"] if way == "option" else []
    environ = {"HQUEUE_LOCAL_HOME": str(tmp_path), "HQUEUE_CONFIG": str(tmp_path / "hqueue.toml")}
    Path(environ["HQUEUE_CONFIG"]).write_text(
        "operation_timeout_ms = 1000" if way == "file" else "", encoding="utf-8"
    )
    if way == "variable":
        environ["HQUEUE_OPERATION_TIMEOUT_MS"] = "1000"
    began_s = time.monotonic()
    code, _, err = run_here(
        [*option, "publish", "t", "v", "-q", "q", "--hubs", str(NOWHERE)], b"", environ
    )
    assert time.monotonic() - began_s < 10, "the bound on operations holds for hubs too"
    assert code == 3, err
    assert f"no hub answers at {NOWHERE} (from --hubs)" in err


@pytest.mark.parametrize("listens", ["nothing said", "web", "another Thrift server"])
@pytest.mark.parametrize(
    "command",
    [["publish", "t", "v", "-q", "q"], ["topics", "move", "q", "t", "h:1"]],
    ids=["publish", "move"],
)
def test_what_is_no_hub_is_named_with_where_its_address_is_from(
    command: list[str], listens: str, tmp_path: Path
) -> None:
    thrift = b"\x80\x01\x00\x03\0\0\0\x06hqueue"
    served = {
        "nothing said": saying(None),
        "web": web_server(),
        "another Thrift server": saying(thrift),
    }
    named = {"nothing said": Met.SILENT, "web": Met.WEB, "another Thrift server": Met.THRIFT}
    with served[listens] as address:
        code, _, err = run_here(
            ["--operation-timeout-ms", "2000", *command],
            b"",
            {"HQUEUE_LOCAL_HOME": str(tmp_path), "HQUEUE_HUBS": str(address)},
        )
    assert code in (3, 4), err
    assert f"no hub answers at {address} (from HQUEUE_HUBS)" in err
    assert f"{address} is {named[listens].value}" in err


def test_rules_are_only_read_and_of_that_no_outcome_is_unknown(tmp_path: Path) -> None:
    with web_server() as address:
        code, _, err = run_here(
            ["--operation-timeout-ms", "1000", "topics", "acl", "q", "t", "--hubs", str(address)],
            b"",
            {"HQUEUE_LOCAL_HOME": str(tmp_path)},
        )
    assert code == 3, err
    assert not err.rstrip().endswith("outcome='unknown']")
