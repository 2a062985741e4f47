"""The local server is looked at and used from the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import hqueue
from tests.acceptance.commands import Run, Start

pytestmark = pytest.mark.usefixtures("server")


def test_status_shows_the_server_and_start_finds_it_running(run_process: Run) -> None:
    before = json.loads(run_process("local", "status", "--json").out)
    assert before["ready"] is True
    assert {process["name"] for process in before["processes"]} >= {"master"}
    started = run_process("local", "start", "--json")
    assert started.code == 0
    after = json.loads(started.out)
    assert [p["pid"] for p in after["processes"]] == [p["pid"] for p in before["processes"]]
    shown = [line.split("\t") for line in run_process("local", "status").lines]
    assert ["ready", "yes"] in shown
    assert ["hbase", "gateways"] in shown, "those of the tests"
    assert run_process("local", "start", "--gateways").code == 0


def test_logs_are_shown_and_followed(run: Run, start: Start) -> None:
    lines = run("local", "logs", "master", "-n", "5").lines
    assert len(lines) == 5
    assert all(line.startswith("master\t") for line in lines)
    follower = start("local", "logs", "master", "-n", "1", "--follow")
    assert follower.line().startswith("master\t")
    follower.interrupt()
    assert follower.end().code == 130


def test_without_a_server_status_fails_and_stop_has_nothing_to_do(run: Run, tmp_path: Path) -> None:
    home = {"HQUEUE_LOCAL_HOME": str(tmp_path / "none")}
    assert run("local", "status", env=home).code == 1
    stopped = run("local", "stop", env=home)
    assert (stopped.code, stopped.err) == (0, "No local server was running.\n")
    assert run("local", "logs", env=home).code == 1


def test_the_data_is_not_deleted_unasked(run: Run) -> None:
    assert run("local", "reset").code == 2
    assert json.loads(run("local", "status", "--json").out)["ready"] is True


@pytest.mark.thorough("what `make demo` shows")
def test_the_demo_ships_real_input_reads_it_back_and_draws_what_happened(
    run_process: Run, client: hqueue.Client, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_bytes(b"".join(b"word %d\n" % n for n in range(3_000)))
    shipped = run_process(
        *("demo", str(tmp_path / "words.txt"), "-", "--seconds", "3"),
        stdin=b"piped\n",
        env={"HQUEUE_HBASE": "native"},
    )
    assert shipped.code == 0, shipped.err
    text = shipped.out.decode()
    found = re.search(r"hqueue tail (demo-\S+)", text)
    assert found is not None
    try:
        with client.queue(found[1]) as queue:
            assert queue.partitions == 8
            messages = list(queue.scan())
        assert sum(message.topic == "words.txt" for message in messages) == 3_000
        assert [m.value for m in messages if m.topic == "stdin"] == [b"piped"]
        logged = [message for message in messages if message.topic == "INFO"]
        assert logged
        assert all(m.key and [name for name, _ in m.headers] == ["process"] for m in logged)
        assert f"put       {len(messages):,} messages" in text
        assert f"delivered {len(messages):,} to a listener" in text
        assert f"counted   {len(messages):,} messages in a Spark job" in text
        assert "each of them got every message" in text
        rows = [line.split() for line in text.splitlines() if re.match(r"\s+\d ", line)]
        assert [row[0] for row in rows] == [str(n) for n in range(8)]
        assert sum(int(row[2].replace(",", "")) for row in rows) == len(messages)
        assert all(row[-1] == "0" for row in rows), "nothing is left behind"
        assert "after it was put" in shipped.err
        for noise in ("[Stage", "WARN ", "WARNING", "log4j"):
            assert noise not in re.sub(r"^  (read|delivered) .*", "", shipped.err, flags=re.M)
    finally:
        client.disable_queue(found[1])
        client.delete_queue(found[1])
