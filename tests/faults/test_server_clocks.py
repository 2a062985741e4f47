"""A server's clock is set while it runs; its waits are as long as before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hqueue.local.cluster import ClusterHosts

from .server_clocks import NoClocksError, ServerClocks, can_set_clocks

TELL = """\
import sys, time
for line in sys.stdin:
    print(time.time(), time.monotonic(), flush=True)
"""
SLACK_S = 60.0


def test_a_clock_is_set_and_the_monotonic_one_is_not(tmp_path: Path) -> None:
    if not can_set_clocks():
        with pytest.raises(NoClocksError, match="install Debian's `faketime`"):
            ServerClocks(tmp_path, ["a"])
        return
    clocks = ServerClocks(tmp_path, ["a"])
    hosts = clocks.on(ClusterHosts({"a": "127.0.0.1", "b": "127.0.0.1"}))
    assert hosts.command("b") == ()
    for ahead_s in (7_200.0, -7_200.0):
        clocks.set("a", ahead_s)
        with (
            subprocess.Popen(
                [*hosts.command("a"), sys.executable, "-c", TELL],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as faked,
            subprocess.Popen(
                [sys.executable, "-c", TELL],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as right,
        ):
            answers = []
            for process in (faked, right):
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("\n")
                process.stdin.flush()
                answers.append(tuple(map(float, process.stdout.readline().split())))
                process.stdin.close()
        (wall_s, monotonic_s), (right_s, right_monotonic_s) = answers
        assert wall_s - right_s == pytest.approx(ahead_s, abs=SLACK_S)
        assert monotonic_s - right_monotonic_s == pytest.approx(0, abs=SLACK_S)
