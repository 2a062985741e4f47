"""Two consumers of one group, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from typing import Any

__all__ = ["CONSUMERS", "group_rate"]

CONSUMERS = 2
WAIT_S = 240


def group_rate(count: int, partitions: int, task: Mapping[str, object]) -> float:
    """Messages a second that a fresh group reads from the oldest on, joined before.

    Args:
        count: how many there are, as many in each partition.
        partitions: how many the log has.
        task: the library, where its servers are, and the log's name.
    """
    whole = {
        **task,
        "group": f"bench-{uuid.uuid4().hex[:12]}",
        "partitions": partitions // CONSUMERS,
        "share": count // CONSUMERS,
    }
    program = [sys.executable, "-m", f"{__package__}.group_member", json.dumps(whole)]
    members = [
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(CONSUMERS)
    ]
    try:
        for member in members:
            while _hear(member) != "ready":
                pass
        began_s = time.monotonic()
        for member in members:
            _tell(member)
        ended_s = max(_await_share(member, whole["share"]) for member in members)
        for member in members:
            _tell(member)
            member.wait(WAIT_S)
    finally:
        for member in members:
            member.kill()
            member.wait()
            for stream in (member.stdin, member.stdout):
                if stream is not None:
                    stream.close()
    return count / (ended_s - began_s)


def _await_share(member: subprocess.Popen[str], share: object) -> float:
    """When it had all of its share."""
    while True:
        said = _hear(member)
        if isinstance(said, list) and said[1] == share:
            return float(said[0])


def _tell(member: subprocess.Popen[str]) -> None:
    assert member.stdin is not None
    member.stdin.write("\n")
    member.stdin.flush()


def _hear(member: subprocess.Popen[str]) -> Any:
    assert member.stdout is not None
    line = member.stdout.readline()
    if not line:
        raise RuntimeError("a consumer of the group has ended")
    return json.loads(line)
