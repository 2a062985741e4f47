"""``hqueue work``: a command for each message, whose exit code is the answer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue import Message
from tests.acceptance.commands import Run, Running
from tests.support.backends import Backend
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.waiting import wait_for

IDLE = ("--idle-ms", "700")


@pytest.fixture
def queue(client: hqueue.Client, name: str) -> hqueue.Queue:
    return client.create_queue(name, partitions=2)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def letters(queue: hqueue.Queue) -> list[tuple[bytes, str, int]]:
    waiting = queue.dead_letters.waiting(group=queue.name)
    return sorted((each.message.value, each.reason, each.attempts) for each in waiting)


@pytest.mark.in_memory
def test_the_exit_code_is_the_answer(
    run: Run, client: hqueue.Client, queue: hqueue.Queue, log: Path
) -> None:
    for number, value in enumerate((b"0", b"65", b"75", b"3")):
        queue.put(Message("t", value), partition=number % 2)
    script = f'read -r value; echo "$MESSAGE_DELIVERIES $value" >> {log}; echo no >&2; exit $value'
    options = (
        "--group",
        queue.name,
        "--deliveries-max",
        "2",
        "--retry-after",
        "50ms",
        "--jobs",
        "2",
    )
    ended = run("work", queue.name, *options, *IDLE, "--", "sh", "-c", script)
    assert ended.code == 0, ended.err
    assert sorted(log.read_text().splitlines()) == ["1 0", "1 3", "1 65", "1 75", "2 3", "2 75"]
    assert letters(queue) == [
        (b"3", "failed 2 times: exit code 3: no", 2),
        (b"65", "exit code 65: no", 1),
        (b"75", "failed 2 times: exit code 75: no", 2),
    ]
    shared = [each.shared for each in client.describe_group(queue.name).partitions]
    assert sum(each.rejected for each in shared if each) == 1
    assert sum(each.exhausted for each in shared if each) == 2
    assert "exit code 75: no; delivered again after 0.05 s." in ended.err
    assert run("work", queue.name, *options, *IDLE, "--", "false").err.count("\n") == 1, "all done"


@pytest.mark.in_memory
def test_a_command_gets_the_message_and_no_shell_sees_it(
    run: Run, queue: hqueue.Queue, tmp_path: Path
) -> None:
    value = b"$(touch hacked); 'x' {} \xff"
    headers = [("trace-id", b"a1"), ("zero", b"\0")]
    put = queue.put(Message("t", value, b"key", headers), partition=1)
    put_at = put[0] if isinstance(put, list) else put
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys\n"
        "seen = {k: v for k, v in os.environ.items() if k.startswith('MESSAGE_')}\n"
        "said = [sys.argv[1:], sys.stdin.buffer.read().hex(), seen, os.getcwd()]\n"
        f"open({str(tmp_path / 'seen')!r}, 'w').write(json.dumps(said))\n"
    )
    command = ("python3", str(script), "-v={}", "end")
    ended = run("work", queue.name, "-g", queue.name, "-n", "1", "--", *command)
    assert ended.code == 0, ended.err
    arguments, stdin, seen, folder = json.loads((tmp_path / "seen").read_text())
    assert arguments == [f"-v={os.fsdecode(value)}", "end"]
    assert bytes.fromhex(stdin) == value
    assert seen == {
        "MESSAGE_ID": str(put_at),
        "MESSAGE_KEY": "key",
        "MESSAGE_TOPIC": "t",
        "MESSAGE_QUEUE": queue.name,
        "MESSAGE_PARTITION": "1",
        "MESSAGE_TIMESTAMP_MS": str(put_at.timestamp),
        "MESSAGE_DELIVERIES": "1",
        "MESSAGE_HEADER_TRACE_ID": "a1",
    }
    assert not Path(folder, "hacked").exists()


@pytest.mark.in_memory
def test_what_takes_too_long_or_can_not_be_an_argument_is_a_dead_letter_with_the_reason(
    run: Run, queue: hqueue.Queue
) -> None:
    queue.put([Message("t", b"a\0b"), Message("t", b"slow")], partition=0)
    options = ("-g", queue.name, "--deliveries-max", "1", "--timeout", "200ms")
    sleeping = ("sh", "-c", "trap '' TERM; sleep 60 & wait; wait", "{}")
    ended = run("work", queue.name, *options, "-n", "2", "--", *sleeping)
    assert ended.code == 0, ended.err
    zero = "the command was not run: the value has a zero byte: it can't be an argument"
    assert letters(queue) == [
        (b"a\0b", zero, 1),
        (b"slow", "failed once: took too long", 1),
    ]


@pytest.mark.in_memory
def test_a_worker_is_not_idle_while_its_commands_run(
    run: Run, queue: hqueue.Queue, log: Path
) -> None:
    queue.put([Message("t", b"%d" % number) for number in range(2)], partition=0)
    script = f"sleep 1.5; cat >> {log}"
    ended = run("work", queue.name, "-g", queue.name, *IDLE, "--", "sh", "-c", script)
    assert ended.code == 0, ended.err
    assert sorted(log.read_text()) == ["0", "1"]


@pytest.mark.in_memory
def test_what_a_command_leaves_behind_holds_up_no_message(
    run: Run, queue: hqueue.Queue, log: Path
) -> None:
    queue.put([Message("t", b"%d" % number) for number in range(2)], partition=0)
    script = f"cat >> {log}; sleep 60 & echo $! >> {log}.left; echo said >&2; exit 65"
    ended = run("work", queue.name, "-g", queue.name, "-n", "2", "--", "sh", "-c", script)
    left = [int(each) for each in Path(f"{log}.left").read_text().split()]
    try:
        assert ended.code == 0, ended.err
        assert all(Path(f"/proc/{pid}").exists() for pid in left), "they outlasted the worker"
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert [reason for _, reason, _ in letters(queue)] == 2 * ["exit code 65: said"]


@pytest.mark.in_memory
def test_messages_of_a_key_are_processed_in_order_also_when_one_fails(
    run: Run, queue: hqueue.Queue, log: Path
) -> None:
    queue.put([Message("t", b"%d" % number, b"k") for number in range(4)], partition=0)
    script = f'v=$(cat); echo "$v" >> {log}; test "$v$MESSAGE_DELIVERIES" != 11'
    options = ("-g", queue.name, "--ordered-by-key", "--jobs", "4", "--retry-after", "100ms")
    ended = run("work", queue.name, *options, *IDLE, "--", "sh", "-c", script)
    assert ended.code == 0, ended.err
    assert log.read_text().split() == ["0", "1", "1", "2", "3"]


@pytest.mark.in_memory
def test_a_process_that_outlasts_its_lock_keeps_its_message(
    run: Run, queue: hqueue.Queue, log: Path
) -> None:
    queue.put(Message("t", b"long"), partition=0)
    script = f"echo x >> {log}; sleep 2.5"
    ended = run(
        "work", queue.name, "-g", queue.name, "--lock", "1s", *IDLE, "--", "sh", "-c", script
    )
    assert ended.code == 0, ended.err
    assert log.read_text() == "x\n"
    shown = run("groups", "describe", queue.name, "--json").lines
    assert {json.loads(each)["lag"] for each in shown} == {0}


@pytest.mark.in_memory
def test_what_can_not_be_run_is_refused_before_a_message_is_taken(
    run: Run, queue: hqueue.Queue
) -> None:
    refused = run("work", queue.name, "-g", queue.name, "--", "no-such-command")
    assert (refused.code, "there is no such command" in refused.err) == (2, True)
    assert run("groups", "describe", queue.name).code == 1
    assert run("work", queue.name, "-g", queue.name, "--start", "sometime", "--", "true").code == 2


@pytest.fixture
def start_over(
    backend: Backend, process_environment: dict[str, str], tmp_path: Path
) -> Iterator[tuple[hqueue.Client, Callable[..., Running]]]:
    """A client, and what starts real commands beside it; in memory they share a ZooKeeper."""
    environment = {**process_environment, "XDG_STATE_HOME": str(tmp_path), "COLUMNS": "120"}
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        started.append(Running(arguments, environment))
        return started[-1]

    with contextlib.ExitStack() as stack:
        given = {}
        if "HQUEUE_GATEWAYS" in environment:
            zookeeper = stack.enter_context(MemoryZooKeeper())
            given["zookeeper"] = environment["HQUEUE_ZOOKEEPER"] = f"127.0.0.1:{zookeeper.port}"
        yield stack.enter_context(backend.connect(**given)), start
        for running in started:
            running.kill()


@pytest.mark.in_memory
def test_a_signal_gives_running_commands_time_and_releases_what_has_no_answer(
    queue: hqueue.Queue, log: Path, start_over: tuple[hqueue.Client, Callable[..., Running]]
) -> None:
    client, start = start_over
    queue.put([Message("t", b"1.5"), Message("t", b"600")], partition=0)
    script = f'v=$(cat); echo "$v" >> {log}; sleep "$v"; echo end >> {log}'
    options = ("-g", queue.name, "--jobs", "2", "--grace", "4s")
    running = start("work", queue.name, *options, "--", "sh", "-c", script)
    wait_for(lambda: log.exists() and len(log.read_text().split()) == 2, "both run")
    running.terminate()
    ended = running.end()
    assert (ended.code, log.read_text().count("end")) == (0, 1), ended.err
    first = client.describe_group(queue.name).partitions[0]
    assert first.lag is not None
    assert first.shared is not None
    assert (first.lag.messages, first.shared.acquired) == (1, 0)
    # The command that was ended did not fail: the delivery does not count.
    with hqueue.ShareConsumer(queue.name, group=queue.name, client=client) as consumer:
        (again,) = consumer.poll(60_000)
    assert (again.value, again.deliveries) == (b"600", 1)
