"""A program that ends normally loses nothing that it sent, however it ends, on every Python."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import hqueue
from hqueue.local import LocalServer
from tests.support import pythons

ENDINGS = {
    "script": 0,
    "client_used_before": 0,
    "error": 1,
    "sys_exit": 7,
    "handled_signal": 7,
    "signal_without_handler": -15,
    "daemon_thread": 0,
    "late_thread": 0,
    "exit_handlers": 0,
    "first_used_in_a_late_thread": 0,
    "first_used_by_an_exit_handler": 0,
    "os_fork": 0,
    "forked_child": 0,
    "served_child": 0,
    "spawned_child": 0,
    "child_with_a_thread": 0,
    "pool": 0,
    "executor": 0,
}
"""Each way to end, and the exit code."""

SENT = [b"%d" % n for n in range(100)]
TOGETHER = 4
ENDING_S = 120
PROGRAM = Path(__file__).parent / "programs" / "end.py"

MakeQueue = Callable[..., hqueue.Queue]


@pytest.fixture(
    scope="module",
    params=[
        version
        if version == pythons.PRESENT
        else pytest.param(version, marks=pytest.mark.thorough("as on the Python of the tests"))
        for version in pythons.versions()
    ],
)
def python(request: pytest.FixtureRequest) -> Path:
    """A Python that has the library: each that is on this machine."""
    return pythons.environment_of(request.param)


@pytest.mark.parametrize("endings", [list(ENDINGS)[n::TOGETHER] for n in range(TOGETHER)])
def test_what_was_sent_before_the_end_of_a_program_is_in_the_log(
    endings: list[str],
    python: Path,
    make_queue: MakeQueue,
    process_environment: dict[str, str],
) -> None:
    queues = {ending: make_queue() for ending in endings}
    _check_endings(queues, python, process_environment)


def test_what_was_sent_before_the_end_of_a_program_is_in_the_log_natively(
    server: LocalServer, server_environment: dict[str, str]
) -> None:
    environment = {**server_environment, "HQUEUE_HBASE": "native"}
    newest = pythons.environment_of(list(pythons.versions())[-1])
    unique = uuid.uuid4().hex
    with hqueue.connect(server.settings(hbase="native", gateways=())) as client:
        for n in range(TOGETHER):
            queues = {
                ending: client.create_queue(f"{ending}_{unique}", partitions=1)
                for ending in list(ENDINGS)[n::TOGETHER]
            }
            _check_endings(queues, newest, environment)
            for queue in queues.values():
                client.disable_queue(queue.name)
                client.delete_queue(queue.name)


def _check_endings(
    queues: dict[str, hqueue.Queue], python: Path, environment: dict[str, str]
) -> None:
    """Let a program end in each of these ways, which writes to this queue."""
    processes = {
        ending: subprocess.Popen(
            [python, PROGRAM, ending, queue.name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        for ending, queue in queues.items()
    }
    try:
        for ending, process in processes.items():
            said, errors = process.communicate(timeout=ENDING_S)
            assert process.returncode == ENDINGS[ending], (ending, errors.decode())
            assert ending == "error" or not errors, (ending, errors.decode())
            values: dict[str, list[bytes]] = {}
            for message in queues[ending].scan():
                values.setdefault(message.topic, []).append(message.value)
            assert sorted(values["t"], key=int) == SENT, ending
            if ending == "daemon_thread":
                acknowledged = said.split()
                assert acknowledged
                assert values["daemon"][: len(acknowledged)] == acknowledged
            if ending == "exit_handlers":
                assert sorted(values["handler"]) == [b"put"] * 16 + [b"sent"] * 8
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


@pytest.mark.parametrize("ending", ["commits", "committing_child"])
def test_what_was_to_be_committed_later_is_committed_before_a_program_ends(
    ending: str,
    python: Path,
    client: hqueue.Client,
    make_queue: MakeQueue,
    server_environment: dict[str, str],
) -> None:
    queue = make_queue()
    last = [queue.put(hqueue.Message("t", value)) for value in SENT][-1]
    command = [python, PROGRAM, ending, queue.name]
    subprocess.run(command, check=True, env=server_environment, timeout=ENDING_S)
    with hqueue.Consumer(group=queue.name, client=client) as consumer:
        assert consumer.committed([(queue.name, 0)]) == {(queue.name, 0): last.next()}
