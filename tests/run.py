"""The plans behind `make check`, `make test` and `make test-all`: what runs when.

A plan has stages that run one after the other. A stage has lanes that run beside one another, and
the steps of a lane run one after the other. Tests on real servers wait most of their time, for
sessions to end and for bounds to pass: two lanes of them, each with a server of its own, fit on
two cores. Tests that need no server take all cores, and beside them servers would miss deadlines.
The tests on a cluster, which is ten processes, run alone.

What the first lane of a stage writes is shown as it comes, what the others write when the stage has
ended: nothing is mixed. The last lines say how each step ended. The exit code is 0 if all steps
ended so.

    python -m tests.run check|test|all
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

ELSEWHERE = (
    "not kafka and not drivers and not tables and not larger and not chart and not release "
    "and not repeated and not secured and not prometheus and not browser and not upgrades "
    "and not harmed"
)
"""What needs an environment or a quarter of an hour of its own, and has its own commands."""

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    "PYTHONPYCACHEPREFIX": str(ROOT / ".pytest_cache" / "compiled"),
}
"""Compiled code is kept: the tests start hundreds of processes, and each would compile it again."""

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class Step:
    """A command, and how it ended."""

    name: str
    command: list[str]
    code: int | None = None
    closing: str = "not run"
    took_s: float = 0.0


@dataclass
class Lane:
    """Steps that run one after the other, each whether or not the one before ended well."""

    steps: list[Step]
    output: IO[bytes] = field(default_factory=tempfile.TemporaryFile)


def tests(name: str, marked: str, *options: str) -> Step:
    """The tests with these markers, in a process of pytest of their own."""
    expression = f"({marked}) and {ELSEWHERE}"
    cache = f"cache_dir=.pytest_cache/{name}"
    command = [sys.executable, "-m", "pytest", "-m", expression, "-o", cache, *options]
    return Step(name, command)


PROCESSES = str(CORES + 2)
"""Two more than there are cores: many tests wait, for a clock or another process."""

SLOWEST = ("--durations", "15", "--durations-min", "2")
"""Which tests took longest is shown: who makes this faster begins there."""

SECOND_LANE = ("tests/acceptance", "tests/conformance", "tests/spark", "tests/unit")
"""On servers these take about as long as all else: counted on two cores, 29 minutes and 28."""

SPREAD = ("--numprocesses", PROCESSES, "--dist", "worksteal", "--quiet")
"""On all cores: for tests that need no server."""


def strangers() -> Step:
    """Attacks on all ports, three minutes of them, alone. An honest call that takes a second fails
    them: how many times slower than alone it is would say as much of the machine, and is measured
    for the page on reliability.
    """
    command = [sys.executable, "-m", "tests.strangers", "--seconds", "180", "--p99-ms-min", "200"]
    return Step("strangers", command)


Stage = list[Lane]


def check() -> list[Stage]:
    """What needs no server and no Java."""
    return [
        [
            Lane([tests("check", "not servers and not thorough", *SPREAD)]),
            Lane([Step("lint", ["make", "--no-print-directory", "lint"])]),
        ]
    ]


def without_cluster(also: str = "") -> list[Stage]:
    """The tests on no server and on one server, but for those that ``also`` leaves out."""
    alone = "servers and not cluster" + also
    return [
        [Lane([tests("serverless", f"not servers{also}", *SPREAD)])],
        [
            Lane([tests("servers-1", alone, *SLOWEST, *map("--ignore={}".format, SECOND_LANE))]),
            Lane([tests("servers-2", alone, *SLOWEST, *SECOND_LANE)]),
        ],
    ]


def everything() -> list[Stage]:
    """All that is here. A test on a cluster is always thorough."""
    return [
        *without_cluster(),
        [Lane([tests("cluster", "cluster", *SLOWEST)])],
        [Lane([strangers()])],
    ]


PLANS = {
    "check": check,
    "test": lambda: without_cluster(" and not thorough"),
    "all": everything,
}


class Runner:
    """Runs the stages of a plan."""

    def __init__(self, stages: list[Stage]) -> None:
        self._stages = stages
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ending = threading.Event()

    def run(self) -> int:
        """Run them all, show what they wrote, and give the exit code."""
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        for stage in self._stages:
            self._run_stage(stage)
        steps = [step for stage in self._stages for lane in stage for step in lane.steps]
        print()
        for step in steps:
            ended = "ok    " if step.code == 0 else "FAILED"
            print(f"{ended} {step.name:<14} {step.took_s:6.1f} s  {step.closing}")
        sys.stdout.flush()
        return 130 if self._ending.is_set() else int(any(step.code != 0 for step in steps))

    def _run_stage(self, stage: Stage) -> None:
        beside = [
            threading.Thread(target=self._follow, args=(lane, lane is stage[0])) for lane in stage
        ]
        for thread in beside:
            thread.start()
        for thread in beside:
            thread.join()
        for lane in stage[1:]:
            lane.output.seek(0)
            sys.stdout.buffer.write(lane.output.read())

    def _follow(self, lane: Lane, shown: bool) -> None:
        for step in lane.steps:
            if self._ending.is_set():
                return
            self._run(step, lane, shown)

    def _run(self, step: Step, lane: Lane, shown: bool) -> None:
        self._write(lane, f"\n$ {shlex.join(step.command)}\n".encode(), shown)
        began = time.monotonic()
        # A group of its own: what ends this one decides how the others end.
        process = subprocess.Popen(
            step.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=ENVIRONMENT,
        )
        self._running.add(process)
        if self._ending.is_set():
            _interrupt(process)
        assert process.stdout is not None
        last = b""
        while block := process.stdout.read1(65_536):  # type: ignore[attr-defined]
            self._write(lane, block, shown)
            last = (last + block)[-4_096:]
        step.code = process.wait()
        self._running.discard(process)
        step.took_s = time.monotonic() - began
        lines = last.decode(errors="replace").strip().splitlines()
        step.closing = lines[-1].strip("= ") if lines else ""

    @staticmethod
    def _write(lane: Lane, block: bytes, shown: bool) -> None:
        if not shown:
            lane.output.write(block)
            return
        sys.stdout.buffer.write(block)
        sys.stdout.flush()

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Interrupt the tests: they stop the servers that they started, and say what failed."""
        self._ending.set()
        for process in list(self._running):
            _interrupt(process)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGINT)
    except ProcessLookupError:
        pass  # It has ended by itself.


def main() -> int:
    """Run the plan that is named."""
    if len(sys.argv) != 2 or sys.argv[1] not in PLANS:
        print(f"usage: python -m tests.run {'|'.join(PLANS)}", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    return Runner(PLANS[sys.argv[1]]()).run()


if __name__ == "__main__":
    sys.exit(main())
