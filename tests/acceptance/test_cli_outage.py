"""An outage is a line at its beginning and one at its end, for each thing that is down."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import hqueue
from hqueue import local
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parents[1] / "integration" / "programs" / "live_through_outage.py"
SESSION_MS = 4_000
LINES_MAX = 14
"""Six things that a worker needs, and the loss of its session."""


class Process:
    """A process whose streams go into files."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str], *given: str) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, *given],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    @property
    def out(self) -> list[str]:
        return self._out.read_text(encoding="utf-8").splitlines()

    @property
    def err(self) -> list[str]:
        return self._err.read_text(encoding="utf-8").splitlines()

    def said(self, text: str) -> bool:
        return any(text in line for line in self.err)


@pytest.mark.servers
@pytest.mark.thorough("a server of its own, which is killed and started again, 40 s")
@pytest.mark.timeout(300)
def test_a_restart_of_hbase_and_zookeeper_is_a_few_lines_of_each_process_and_none_twice(
    tmp_path: Path,
) -> None:
    with local.start(home=tmp_path / "home") as server, contextlib.ExitStack() as stack:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HQUEUE_")} | {
            "HQUEUE_LOCAL_HOME": str(tmp_path / "home"),
            "HQUEUE_CONFIG": os.devnull,
            "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
        }
        with hqueue.connect(server.settings()) as client:
            client.create_queue("q", partitions=8)

        def begin(name: str, *given: str) -> Process:
            return stack.enter_context(Process(name, tmp_path, environment, *given))

        commands = ("-m", "hqueue.cli")
        ports = ("--port", "0", "--metrics-port", "0")
        worker = begin("worker", *commands, "worker", "--api-port", "0", *ports)
        hub = begin("hub", *commands, "hub", "q", *ports)
        program = begin("program", str(PROGRAM), "q")
        wait_for(lambda: worker.said("is ready; it takes notifications at "), "the worker is ready")
        wait_for(lambda: hub.said("the hub of q is ready; it listens at "), "the hub is ready")
        wait_for(lambda: "ready" in program.out, "the program consumes")
        before = {each: len(each.err) for each in (worker, hub, program)}

        server.kill("master")
        for each in (worker, hub):
            wait_for(lambda each=each: each.said("the session was lost"), "it lost its session")  # type: ignore[misc]
        wait_for(lambda: program.said("the connection to ZooKeeper at "), "the program has noticed")
        server.restart("master")
        consumed = len(program.out)
        for each in (worker, hub, program):
            wait_for(lambda each=each: each.said("answers again, after "), "it is over")  # type: ignore[misc]
        wait_for(lambda: len(program.out) > consumed, "the program goes on")
        worker.end()
        hub.end()

    for each, known in before.items():
        lines = each.err[known:]
        assert len(lines) <= LINES_MAX, lines
        kinds = collections.Counter(re.sub(r" \[.*|[0-9.]+ s", "", line) for line in lines)
        # A program has a session for each of its clients: the consumer's, and the producer's.
        assert max(kinds.values()) <= (2 if each is program else 1), lines
