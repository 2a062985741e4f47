"""The command line against the real server and over memory: most commands in this process, for one
of its own takes seconds; those that test the process itself run the installed command.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import hqueue
from tests.acceptance.commands import Ended, Run, Running, Start, run_installed
from tests.support.backends import Backend, MemoryBackend
from tests.support.command_line import run_here


@pytest.fixture(scope="session")
def environment(
    server_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Where the commands find the server, and a state folder of their own."""
    state = str(tmp_path_factory.mktemp("state"))
    return {**server_environment, "XDG_STATE_HOME": state, "TZ": "UTC", "COLUMNS": "120"}


@pytest.fixture
def run(backend: Backend, request: pytest.FixtureRequest) -> Run:
    """Run a command to its end in this process, with all else as it has it in one of its own."""
    if isinstance(backend, MemoryBackend):
        return _run_over_memory(backend, request.getfixturevalue("tmp_path"))
    return _run_with(request.getfixturevalue("environment"))


@pytest.fixture
def run_process(backend: Backend, request: pytest.FixtureRequest) -> Run:
    """Run the installed command to its end: for what a process is needed, or tested.

    Over memory, which no other process sees, in this one.
    """
    if isinstance(backend, MemoryBackend):
        return _run_over_memory(backend, request.getfixturevalue("tmp_path"))
    return run_installed(request.getfixturevalue("environment"))


def _run_with(environment: Mapping[str, str]) -> Run:
    def run_command(
        *arguments: str | bytes, stdin: bytes = b"", env: dict[str, str] | None = None
    ) -> Ended:
        ended = run_here([*map(os.fsdecode, arguments)], stdin, {**environment, **(env or {})})
        assert "Traceback" not in ended[2], ended[2]
        return Ended(*ended)

    return run_command


def _run_over_memory(backend: MemoryBackend, home: Path) -> Run:
    run_command = _run_with({"HOME": str(home), "HQUEUE_LOCAL_HOME": str(home), "COLUMNS": "120"})

    def connect(**given: object) -> hqueue.Client:
        return backend.connect(**hqueue.Settings.load(given).__dict__)

    def run_connected(*arguments: str | bytes, **given: Any) -> Ended:
        with mock.patch("hqueue.connecting.connect", connect):
            return run_command(*arguments, **given)

    return run_connected


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    """Start a command that runs until it is ended."""
    started: list[Running] = []

    def start_command(*arguments: str) -> Running:
        started.append(Running(arguments, environment))
        return started[-1]

    yield start_command
    for running in started:
        running.kill()


@pytest.fixture
def name(client: hqueue.Client) -> Iterator[str]:
    """The name of a queue that does not exist yet, and does not any more after the test."""
    chosen = f"cli-{uuid.uuid4().hex[:12]}"
    yield chosen
    for found in (queue.name for queue in client.list_queues()):
        if found.startswith(chosen):
            client.disable_queue(found)
            client.delete_queue(found)


@pytest.fixture(scope="module")
def shared(client: hqueue.Client) -> Iterator[str]:
    """The name of a queue with three partitions for all tests of a module: tables are slow."""
    chosen = f"cli-{uuid.uuid4().hex[:12]}"
    client.create_queue(chosen, partitions=3, ttl="1d")
    yield chosen
    client.disable_queue(chosen)
    client.delete_queue(chosen)


@pytest.fixture
def opened(client: hqueue.Client, name: str) -> hqueue.Queue:
    """A queue with three partitions."""
    return client.create_queue(name, partitions=3, ttl="1d")
