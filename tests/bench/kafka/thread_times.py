"""Processor time of a process by what its threads are there for: Linux tells it of each."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

__all__ = ["REST", "kind_of", "thread_times_ms"]

REST = "the rest"

_KINDS = {
    "requests": ("RpcServer.", "data-plane-kafk"),
    "network": ("RS-EventLoop", "NettyServer", "default-event"),
    "the log": ("AsyncFSWAL", "FSHLog", "sync.", "WAL-", "log-", "LogRoller"),
    "flushes": ("MemStoreFlusher", "rs(", "member: '"),
    "compactions, chores": ("regionserver/", "kafka-scheduler", "kafka-log-clean"),
    "garbage collection": ("GC Thread", "G1 ", "CMS", "Concurrent Mark", "VM Thread"),
    "the JVM's compilers": ("C1 Compiler", "C2 Compiler"),
}
"""How names of threads begin, as far as Linux keeps them: 15 characters."""

_MS_A_TICK = 1_000 / os.sysconf("SC_CLK_TCK")


def kind_of(thread: str) -> str:
    """What a thread of this name does."""
    return next((kind for kind, begins in _KINDS.items() if thread.startswith(begins)), REST)


def thread_times_ms(pid: int) -> Mapping[tuple[str, str], float]:
    """What each kind of a process's threads has used, as (kind, ``user`` or ``system``): in ms.

    Threads that ended meanwhile are counted with the rest, as the process knows of them.
    """
    times: defaultdict[tuple[str, str], float] = defaultdict(float)
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, user, system = _read(task / "stat")
        except (FileNotFoundError, ProcessLookupError):
            continue
        times[kind_of(name), "user"] += user
        times[kind_of(name), "system"] += system
    _, *whole = _read(Path(f"/proc/{pid}/stat"))
    for mode, used in zip(("user", "system"), whole, strict=True):
        of_threads = sum(spent for (_, of), spent in times.items() if of == mode)
        times[REST, mode] += max(0.0, used - of_threads)
    return times


def _read(stat: Path) -> tuple[str, float, float]:
    """A thread's name, and its user and system time: fields 2, 14 and 15 of ``stat``."""
    head, _, rest = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")
    fields = rest.split()
    return head.partition("(")[2], int(fields[11]) * _MS_A_TICK, int(fields[12]) * _MS_A_TICK
