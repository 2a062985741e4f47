"""The standalone server: started, found, killed, recovered, stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import hqueue
from hqueue import Message, local
from hqueue.errors import LocalServerError
from hqueue.local import freeports, lifecycle
from hqueue.local.process import marked_processes
from hqueue.local.readiness import check_native, check_thrift1, check_thrift2
from hqueue.settings.connection import Settings

from .rows import read_rows, write_rows

pytestmark = pytest.mark.servers

START = """
import json, sys
from hqueue import local
server = local.start(gateways=True, progress=lambda text: print(text, file=sys.stderr, flush=True))
print(json.dumps({process.name: process.pid for process in server.processes}))
"""


def begin_start() -> subprocess.Popen[str]:
    """Start the server of the default home in another process."""
    return subprocess.Popen(
        [sys.executable, "-c", START], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def serves(server: local.LocalServer) -> bool:
    """Say whether rows go through both gateways."""
    (gateway,) = server.gateways
    return (
        check_thrift1(gateway.host, gateway.thrift1_port, 10) is None
        and check_thrift2(gateway.host, gateway.thrift2_port, 10) is None
    )


@pytest.mark.thorough("a server of its own, 17 s")
def test_of_two_starts_at_once_one_starts_and_both_use_it(home: Path) -> None:
    starters = [begin_start() for _ in range(2)]
    said = [starter.communicate(timeout=120) for starter in starters]
    assert [starter.returncode for starter in starters] == [0, 0], said
    first, second = (json.loads(out) for out, _ in said)
    assert first == second
    assert {process.pid for process in marked_processes(home)} == set(first.values())

    # They outlived both starters, and everybody finds them.
    server = local.start(gateways=True)
    assert {process.name: process.pid for process in server.processes} == first
    status = local.status()
    assert status.ready
    assert status.profile == "standalone"
    assert 0 < status.rss_bytes < 2 * 1024**3
    assert serves(server)
    assert Settings.load().gateways == server.gateways == server.settings().gateways
    assert Settings.load().zookeeper == server.zookeeper

    # Another profile, or other ports, are not what runs.
    with pytest.raises(LocalServerError, match="another profile"):
        local.start("cluster", gateways=True)
    with pytest.raises(LocalServerError, match="other ports"):
        local.start(gateways=True, ports={"thrift1": server.gateways[0].thrift1_port + 1})

    # A paused gateway doesn't answer, a resumed one does; a killed one comes back in its place.
    gateway = server.gateways[0]
    server.pause("thrift2")
    assert next(p for p in server.processes if p.name == "thrift2").paused
    assert check_thrift2(gateway.host, gateway.thrift2_port, 0.5) is not None
    server.resume("thrift2")
    assert check_thrift2(gateway.host, gateway.thrift2_port, 10) is None
    server.kill("thrift1")
    assert not server.status().ready
    with pytest.raises(LocalServerError, match="has ended"):
        server.pause("thrift1")
    server.restart("thrift1")
    assert server.status().ready
    assert serves(server)
    with pytest.raises(LocalServerError, match="no process of this name"):
        server.kill("thrift3")

    lines = server.last_log_lines(5, "master")
    assert len(lines) == 5
    assert any("INFO" in line.text for line in local.logs("thrift*"))


@pytest.mark.thorough("three starts of a server, 45 s")
def test_data_survives_a_stop_and_a_kill_and_goes_with_a_reset(home: Path) -> None:
    with local.start(gateways=True) as server:
        written = write_rows(server, "first", 200)
        ports = {name: port for p in server.processes for name, port in p.ports.items()}
    assert marked_processes(home) == []
    assert not (home / "connection.toml").exists()
    assert local.status().profile is None
    assert local.stop() is False

    server = local.start(gateways=True)
    assert {name: port for p in server.processes for name, port in p.ports.items()} == ports
    assert read_rows(server) == written
    written |= write_rows(server, "second", 200)
    for process in server.processes:
        server.kill(process.name)
    assert not local.status().ready

    server = local.start(gateways=True)
    assert read_rows(server) == written

    local.reset()
    assert marked_processes(home) == []
    assert not (home / "data").exists()


@pytest.mark.thorough("a server of its own, 15 s")
def test_its_sessions_outlast_a_time_without_a_processor(home: Path) -> None:
    with local.start():
        said = "\n".join(line.text for line in local.logs("master"))
    assert set(re.findall(r" sessionTimeout=(\d+) ", said)) == {"60000"}


@pytest.mark.thorough("a server of its own and 1,000 regions, a minute")
def test_a_thousand_partitions_are_created_and_written_to(home: Path) -> None:
    with (
        local.start() as server,
        hqueue.connect(server.settings()) as client,
        client.create_queue("wide", partitions=1_000) as queue,
    ):
        for partition in range(1_000):
            queue.put(Message("t", b"value"), partition=partition)
        assert all(process.alive for process in server.status().processes)
        assert sum(each.count for each in queue.offsets()) == 1_000


@pytest.mark.thorough("two starts of a server, 30 s")
def test_given_ports_are_used_and_a_port_taken_meanwhile_is_chosen_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = freeports.choose_ports(["zookeeper", "thrift2"])
    chosen: list[dict[str, int]] = []
    with socket.create_server(("127.0.0.1", 0)) as another:

        def choose(
            names: Iterable[str], *, given: Mapping[str, int], preferred: Mapping[str, int]
        ) -> dict[str, int]:
            ports = freeports.choose_ports(names, given=given, preferred=preferred)
            if not chosen:
                ports["thrift1"] = another.getsockname()[1]
            chosen.append(ports)
            return ports

        monkeypatch.setattr(lifecycle, "choose_ports", choose)
        with local.start(gateways=True, ports=given) as server:
            assert serves(server)
            assert server.zookeeper == f"127.0.0.1:{given['zookeeper']}"
            assert server.gateways[0].thrift2_port == given["thrift2"]
            assert server.gateways[0].thrift1_port == chosen[-1]["thrift1"]
            assert len(chosen) == 2


@pytest.mark.thorough("four starts of a server, 40 s")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_start_that_was_ended_half_way_leaves_no_process(home: Path, number: int) -> None:
    starter = begin_start()
    assert starter.stderr is not None
    while "starting thrift2" not in starter.stderr.readline():
        assert starter.poll() is None
    starter.send_signal(number)
    starter.communicate(timeout=60)
    assert starter.returncode != 0
    assert not local.status().ready
    if number == signal.SIGKILL:
        # It could not clean up after itself; the next to come does.
        assert local.stop(orderly_s=0) is True
    assert marked_processes(home) == []


@pytest.mark.thorough("two starts of a server, 30 s")
def test_without_gateways_a_client_that_names_nothing_speaks_to_hbase_natively(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("HQUEUE_")]:
        if name != "HQUEUE_LOCAL_HOME":
            monkeypatch.delenv(name)
    (home / "hqueue.toml").touch()
    monkeypatch.setenv("HQUEUE_CONFIG", str(home / "hqueue.toml"))
    with local.start() as server:
        assert [process.name for process in server.processes] == ["master"]
        assert server.gateways == local.status().gateways == ()
        assert "gateways" not in (home / "connection.toml").read_text()
        assert check_native({"zookeeper": server.zookeeper}, 10) is None
        for client in (hqueue.connect(), hqueue.connect(server.settings())):
            with client:
                assert (client.settings.hbase, client.settings.gateways) == ("native", ())
        with hqueue.connect() as client:
            queue = client.create_queue("kept", partitions=1)
            written = [queue.put(Message("t", b"%d" % n)) for n in range(3)]
        with pytest.raises(LocalServerError, match="without gateways"):
            local.start(gateways=True)
        with pytest.raises(LocalServerError, match="other ports"):
            local.start(ports={"thrift1": 1_025})
        with pytest.raises(LocalServerError, match="no process of this name"):
            server.restart("thrift1")
        assert server.run_tool("org.apache.hadoop.hbase.util.VersionInfo").returncode == 0
        assert local.start().zookeeper == server.zookeeper
    assert marked_processes(home) == []

    # What lies in HBase is the same with them; and a server with them is one without, too.
    with local.start(gateways=True) as server:
        assert serves(server)
        assert local.start().gateways == server.gateways
        with hqueue.connect() as client:
            assert client.settings.hbase == "gateways"
            assert [m.id for m in client.queue("kept").scan()] == written


def test_a_start_without_java_is_a_clear_error_and_starts_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home / "nowhere"))
    with pytest.raises(LocalServerError, match="install Java 17"):
        local.start()
    assert local.status().profile is None


def test_a_process_that_ends_is_reported_with_its_last_lines(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = home / "fake" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi\n'
        "echo the disk is on fire; exit 3\n",
        encoding="utf-8",
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home / "fake"))
    with pytest.raises(LocalServerError, match="ended while it was started") as caught:
        local.start()
    assert "the disk is on fire" in str(caught.value.log)
    assert marked_processes(home) == []
    assert not (home / "connection.toml").exists()
