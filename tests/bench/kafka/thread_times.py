"""Processor time of a process by what its threads are there for: Linux tells it of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import psutil

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


def kind_of(thread: str) -> str:
    """What a thread of this name does."""
    return next((kind for kind, begins in _KINDS.items() if thread.startswith(begins)), REST)


def thread_times_ms(pid: int) -> Mapping[tuple[str, str], float]:
    """What each kind of a process's threads has used, as (kind, ``user`` or ``system``): in ms.

    What threads used that have ended is with the rest: the process knows of it.
    """
    process = psutil.Process(pid)
    times: defaultdict[tuple[str, str], float] = defaultdict(float)
    whole = process.cpu_times()
    times[REST, "user"], times[REST, "system"] = whole.user * 1e3, whole.system * 1e3
    for thread in process.threads():
        try:
            name = Path(f"/proc/{pid}/task/{thread.id}/comm").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            continue
        kind = kind_of(name)
        for mode, used_s in (("user", thread.user_time), ("system", thread.system_time)):
            times[kind, mode] += used_s * 1e3
            times[REST, mode] -= used_s * 1e3
    return times
