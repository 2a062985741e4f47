"""Ctrl-C ends a command with 130 and without a traceback, at whatever moment it comes; SIGTERM and
SIGHUP end it as Ctrl-C does, with codes of their own, and a role in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_for

PROGRAM = """
import sys

class Begun:
    def find_spec(self, name, path=None, target=None):
        if name == "hqueue.cli.streams":
            open(sys.argv.pop(), "w").close()

sys.meta_path.insert(0, Begun())
from hqueue.cli import main
sys.exit(main())
"""
"""Says in a file when `main` begins to load modules: before it the process is the interpreter's."""

MOMENTS_S = [0.0, 0.05, 0.1, 0.2, 0.4, 0.8]
"""No command ends by itself so soon: ZooKeeper is not there, and is waited for."""

ENVIRONMENT = {**os.environ, "HQUEUE_CONFIG": os.devnull, "HQUEUE_ZOOKEEPER": "127.0.0.1:1"}

HEEDS_HANGUPS = ["env", "--default-signal=HUP"]
"""Under nohup processes ignore SIGHUP, and so do those that they start."""

PORTS = ["--port", "0", "--metrics-port", "0"]
"""Free ones: several of these run beside one another."""
WORKER = ["worker", *PORTS]
HUB = ["hub", "q", *PORTS]
COMMANDS = [["list"], WORKER, HUB, ["describe", "q"]]


@pytest.mark.thorough("two dozen processes, 10 s")
@pytest.mark.parametrize("command", COMMANDS)
def test_at_each_of_several_moments(command: list[str], tmp_path: Path) -> None:
    for moment_s in MOMENTS_S:
        begun = tmp_path / f"begun-{moment_s}"
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *command, str(begun)],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            wait_for(begun.exists, "it loads modules")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moment_s)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert b"Traceback" not in errors, errors
        assert b"Exception ignored" not in errors, errors
        assert process.returncode == 130, (moment_s, errors)


@pytest.mark.parametrize(
    ("command", "number", "code"),
    [
        *((command, signal.SIGINT, 130) for command in COMMANDS),
        (WORKER, signal.SIGTERM, 0),
        (HUB, signal.SIGTERM, 0),
        (["list"], signal.SIGTERM, 143),
        (["list"], signal.SIGHUP, 129),
        (WORKER, signal.SIGHUP, 0),
    ],
)
def test_while_it_waits_for_zookeeper(
    command: list[str], number: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        [*HEEDS_HANGUPS, sys.executable, "-m", "hqueue", *command],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert b"still trying" in said, said
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    assert b"Traceback" not in errors, errors


INTERRUPTED = """
import sys

_, module, moment = sys.argv
sys.argv[1:] = ["--hbase=native", "list"]

class Field:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            if moment == "a class is made":
                class Owner:
                    field = Field()
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from hqueue.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "moment"),
    [
        ("typer", "between two modules"),
        ("hqueue.hbase.native.native_store", "between two modules"),
        ("hqueue.hbase.native.native_store", "a class is made"),
    ],
)
def test_ctrl_c_while_modules_are_loaded_ends_with_130_and_no_traceback(
    module: str, moment: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, moment],
        env=ENVIRONMENT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (130, b"")
