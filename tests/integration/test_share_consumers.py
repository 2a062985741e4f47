"""Consumers of a share group in processes of their own, some of which are killed."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import os
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import hqueue
from hqueue import Message
from tests.support.waiting import wait_for

from .running import Program

LOCK_MS = 3_000
MESSAGES = 800
"""At least so many."""
TOGETHER = 20
FACES = ("threads", "asyncio", "threads", "asyncio")
TIMEOUT_S = 120


class Handed(NamedTuple):
    """A message as a process had it: by the machine's clock."""

    process: str
    from_ns: int
    until_ns: int
    """When it was answered, or its lock was over."""
    deliveries: int


def test_what_killed_consumers_had_comes_again_and_nothing_is_held_by_two(
    make_queue: Callable[..., hqueue.Queue],
    group: str,
    server_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    queue = make_queue(partitions=1)
    with contextlib.ExitStack() as running:
        names = map(str, itertools.count())

        def start(face: str) -> Program:
            path = tmp_path / f"{next(names)}.jsonl"
            program = Program(
                "work", queue.name, group, path, LOCK_MS, face, environment=server_environment
            )
            return running.enter_context(program)

        programs = [start(face) for face in FACES]
        for program in programs:
            program.await_ready()
        put = 0

        def works(path: Path) -> bool:
            """Whether a process was handed enough; there is always something that it can get."""
            nonlocal put
            queue.put([Message("t", b"%d" % n) for n in range(put, put + TOGETHER)])
            put += TOGETHER
            return len(handed_in(path)) >= 3

        def killed_at_work(victim: Program, path: Path) -> bool:
            """Kill a process, if it has messages that it has not begun to acknowledge."""
            os.kill(victim.pid, signal.SIGSTOP)
            at_work = works(path) and notes_in(path)[-1]["what"] == "handed"
            os.kill(victim.pid, signal.SIGKILL if at_work else signal.SIGCONT)
            return at_work

        for number, victim in enumerate(programs[:2]):
            path = tmp_path / f"{number}.jsonl"
            wait_for(
                functools.partial(killed_at_work, victim, path),
                "it works",
                pause_s=0.03,
                timeout_s=TIMEOUT_S,
            )
            programs.append(start(FACES[number]))
        while put < MESSAGES:
            works(path)
        wait_for(lambda: len(acknowledged(tmp_path)) == put, "all are done", timeout_s=TIMEOUT_S)
        for program in programs[2:]:
            assert program.result() in ([], ["ready"])
    check(tmp_path, put)


def notes_in(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def handed_in(path: Path) -> list[dict[str, Any]]:
    return [note for note in notes_in(path) if note["what"] == "handed"]


def acknowledged(folder: Path) -> set[int]:
    """Which messages a process has acknowledged: it may have been too late."""
    return {
        number
        for path in folder.glob("*.jsonl")
        for note in notes_in(path)
        if note["what"] == "acknowledged"
        for number, _ in note["messages"]
    }


def check(folder: Path, put: int) -> None:
    had: dict[int, list[Handed]] = defaultdict(list)
    done_ns: dict[int, int] = {}
    """When it was certain that the group was done with a message."""
    for path in folder.glob("*.jsonl"):
        notes = notes_in(path)
        for note, ending, ended in itertools.zip_longest(notes, notes[1:], notes[2:]):
            if note["what"] == "handed":
                lapses_ns = note["asked_ns"] + LOCK_MS * 1_000_000
                until_ns = min(lapses_ns, ending["at_ns"]) if ending else lapses_ns
                for number, deliveries in note["messages"]:
                    had[number].append(Handed(path.stem, note["at_ns"], until_ns, deliveries))
                    if ended and ended["at_ns"] < lapses_ns:
                        done_ns[number] = ended["at_ns"]
    assert sorted(had) == sorted(acknowledged(folder)) == list(range(put))
    for number, each in had.items():
        each.sort(key=lambda one: (one.deliveries, one.from_ns))
        for one, other in itertools.pairwise(each):
            assert one.deliveries < other.deliveries, (number, each)
            assert one.until_ns <= other.from_ns, (number, each)
        assert all(one.from_ns < done_ns.get(number, math.inf) for one in each), (number, each)
