"""Whatever is typed, the answer is a message and an exit code, never a traceback."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import hqueue
from tests.acceptance.commands import Run, command

pytestmark = pytest.mark.in_memory


@pytest.mark.parametrize(
    "line",
    [
        "nosuch",
        "create",
        "create q",
        "create q -p x",
        "create q -p 0",
        "create q -p 40000",
        "create q -p 1 --ttl soon",
        "create q -p 1 --ttl 5",
        "create q -p 1 -a compression",
        "create q -p 1 -a compresion=GZ",
        "create q -p 1 -a compression=best",
        "create q/q -p 1",
        "alter q",
        "alter q -a partitions_per_region=3",
        "put q",
        "put q x",
        "scan q --format xml",
        "scan q --start tomorrow",
        "scan q --start 1700000000",
        "scan q --start -1m --stop -2m",
        "scan q --limit -1",
        "tail q -n x",
        "lag --checkpoint /no/such/folder",
        "lag q -g g --checkpoint /no/such/folder",
        "help nosuch",
        "metadata nosuch",
        "metadata list",
        "metadata list q/q",
        "metadata list q --kind colour",
        "metadata list q --store paper",
        "metadata get q",
        "metadata get q t s --store paper",
        "metadata import /no/such/file",
        "metadata verify q --against zookeeper",
        "metadata migrate",
        "metadata migrate q/q --to hbase",
        "metadata migrate q --to memory",
        "metadata migrate q --to hbase --abandon",
        "metadata migrate q --to hbase --drain-timeout -1",
        "secure-nodes --all",
        "secure-nodes --apply --yes",
        "local nosuch",
        "local start --profile huge",
        "local reset",
        "--gateways host:x list",
        "--gateways host:1/2,,host:3/99999 list",
        "--operation-timeout-ms 0 list",
        "--transport pigeon list",
        "--zookeeper-root hqueue list",
        "--nosuch list",
        "demo /no/such/file",
        "demo --seconds 0",
        "work q -- true",
        "work q -g g",
        "work q -g g -- no-such-command",
        "work q -g g -j 0 -- true",
        "work q -g g --lock soon -- true",
    ],
)
def test_wrong_usage_is_told_with_exit_code_2(run: Run, line: str) -> None:
    ended = run(*line.split())
    assert ended.code == 2
    assert ended.err
    assert ended.out == b""


def test_the_closest_name_is_told(run: Run) -> None:
    assert "compression" in run("create", "q", "-p", "1", "-a", "compresion=GZ").err
    unknown = run("list", env={"HQUEUE_GATEWAY": "x"})
    assert unknown.code == 2
    assert "closest='gateways'" in unknown.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "{}", "-t", "t", "--partition", "3", "x"),
        ("put", "{}", "-t", "t", "--partition", "-1", "x"),
        ("put", "{}", "-t", "t", "--partition", "1", "--key", "k", "x"),
        ("put", "{}", "-t", "t" * 256, "x"),
        ("put", "{}", "-t", b"\xff", "x"),
        ("put", "{}", "-t", "t", "-f", "/no/such/file"),
        ("put", "{}", "-t", "t", "-f", "/"),
        ("put", "{}", "-t", "t", "-f", "x", "y"),
        ("put", "{}", "-t", "t", "--key", b"\xff", "-p", "0", "x"),
        ("put", "{}", "-t", "t", "--header", "x", "x"),
        ("put", "{}", "-t", "t", "--header", b"\xff=v", "x"),
        ("put", "{}", "-t", "t", "--key-separator", ":", "x"),
        ("put", "{}", "-t", "t", "--key-separator", "", "-f", "/dev/null"),
        ("put", "{}", "-t", "t", "-K", ":", "--message-key", "k", "-f", "/dev/null"),
        ("put", "{}", "-t", "t", "-K", ":", "--format", "length-prefixed", "-f", "/dev/null"),
        ("put", "{}", "--format", "json", "--message-key", "k", "-f", "/dev/null"),
        ("put", "{}", "--format", "json", "-H", "n=v", "-f", "/dev/null"),
        ("put", "{}", "-f", "/dev/null"),
        ("scan", "{}", "--format", "raw", "--print-key"),
        ("tail", "{}", "--format", "length-prefixed", "--print-headers"),
        ("scan", "{}", "--partition", "3"),
        ("scan", "{}", "--topic", ""),
        ("scan", "{}", "--follow", "--merge-sorted"),
        ("tail", "{}", "--partition", "3"),
    ],
)
def test_wrong_input_for_a_queue_is_told_with_exit_code_2(
    run: Run, shared: str, arguments: tuple[str | bytes, ...]
) -> None:
    ended = run(*(shared if argument == "{}" else argument for argument in arguments))
    assert ended.code == 2
    assert ended.err.startswith("hqueue: error: ")
    assert ended.out == b""


@pytest.mark.parametrize("verb", ["describe", "scan", "tail", "disable", "locations", "alter"])
def test_a_queue_that_is_not_there_is_told_with_exit_code_1(run: Run, verb: str) -> None:
    options = ["--ttl", "1d"] if verb == "alter" else []
    ended = run(verb, "cli-no-such-queue", *options)
    assert ended.code == 1
    assert "there is no such queue [queue='cli-no-such-queue']" in ended.err


@pytest.mark.parametrize(
    "line",
    [
        *("lag {}", "lag {} -s s", "dead-letters {} s", "hubs {}", "metadata list {}"),
        *("metadata get {} t", "metadata export {}", "metadata verify {}", "metadata hubs {}"),
        *("topics list {}", "topics owners {}", "topics describe {} t", "publish t v -q {}"),
    ],
)
def test_a_queue_that_nothing_is_known_of_is_told_where_nothing_would_be_shown(
    run: Run, line: str
) -> None:
    ended = run(*line.format("cli-no-such-queue").split())
    assert (ended.code, ended.out) == (1, b"")
    assert "there is no such queue [queue='cli-no-such-queue']" in ended.err


def test_a_subscriber_and_a_group_that_are_not_there_are_told(
    run: Run, client: hqueue.Client, shared: str
) -> None:
    for line in ("lag -s nobody", "lag {} -s nobody", "dead-letters {} nobody"):
        ended = run(*line.format(shared).split())
        assert ended.code == 1
        assert "there is no such subscriber [subscriber='nobody'" in ended.err
    for line in ("lag -g nobody", "lag {} -g nobody"):
        ended = run(*line.format(shared).split())
        assert ended.code == 1
        assert "there is no such group [group='nobody'" in ended.err
    client.add_subscriber(shared, "somebody")
    for line in ("lag -s somebody", "dead-letters {} somebody"):
        assert run(*line.format(shared).split()).code == 0
    client.delete_subscriber(shared, "somebody")
    for line in ("lag {}", "hubs {}", "metadata list {}", "topics list {}", "topics owners {}"):
        empty = run(*line.format(shared).split())
        assert (empty.code, empty.out) == (0, b"")


def test_a_process_that_the_local_server_has_no_log_of_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "master.log").write_text("started\n")
    home = {"HQUEUE_LOCAL_HOME": str(tmp_path)}
    unknown = run("local", "logs", "mastr", env=home)
    assert (unknown.code, unknown.out) == (2, b"")
    assert "known='master', closest='master'" in unknown.err
    assert run("local", "logs", "mas*", env=home).out == b"master\tstarted\n"


@pytest.mark.usefixtures("server")
def test_an_hbase_that_is_away_is_told_with_exit_code_3(run: Run) -> None:
    away = ("--gateways", "127.0.0.1:1/1", "--operation-timeout-ms", "300")
    for arguments in (("list",), ("scan", "q"), ("put", "q", "-t", "t", "x")):
        ended = run(*away, *arguments)
        assert ended.code == 3
        assert "127.0.0.1:1/1" in ended.err


@pytest.mark.parametrize("line", ["scan {}", "list", "describe {} --json", "--help"])
def test_a_stdout_that_takes_nothing_is_told(
    environment: dict[str, str], client: hqueue.Client, shared: str, line: str
) -> None:
    with client.queue(shared) as queue:
        queue.put(hqueue.Message("t", b"x"))
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*command(), *line.format(shared).split()],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"hqueue: error: can't write to stdout")


@pytest.mark.in_memory_first
def test_the_installed_command_does_and_says_the_same(run_process: Run, name: str) -> None:
    assert run_process("create", name, "-p", "1").code == 0
    assert run_process("put", name, "-t", "t", "grün").code == 0
    read = run_process("scan", name, "--format", "raw")
    assert (read.code, read.out.decode(), read.err) == (0, "grün\n", "")
    missing = run_process("describe", f"{name}-b")
    assert (missing.code, missing.out) == (1, b"")
    assert missing.err.startswith("hqueue: error: there is no such queue")
    wrong = run_process("scan", name, "--limit", "-1")
    assert (wrong.code, wrong.out) == (2, b"")


PIPELINES = [f"pipeline {name}" for name in ("archive", "compact", "replay", "copy", "statistics")]


def test_help_names_the_exit_codes_and_every_command_has_help(run: Run) -> None:
    shown = run("--help")
    assert shown.code == 0
    text = " ".join(shown.out.decode().split())
    assert "130 interrupted" in text
    verbs = "create list describe alter disable enable delete truncate locations put scan tail"
    for verb in (*verbs.split(), "shell", "demo", "local", "local start", "local logs", *PIPELINES):
        assert run(*verb.split(), "--help").code == 0
        assert verb.split()[0] in text


@pytest.mark.parametrize(
    ("command_line", "written"), [("hub", "in [hub]"), ("worker", "in [worker]")]
)
def test_what_stands_in_brackets_is_in_the_help(run: Run, command_line: str, written: str) -> None:
    assert written in " ".join(run(command_line, "--help").out.decode().split())


def test_hubs_of_the_environment_are_named_by_their_variable(run: Run) -> None:
    ended = run("publish", "t", "v", "-q", "q", env={"HQUEUE_HUBS": "nowhere"})
    assert ended.code == 2
    assert "variable='HQUEUE_HUBS'" in ended.err
    assert "variable" not in run("publish", "t", "v", "-q", "q", "--hubs", "nowhere").err
