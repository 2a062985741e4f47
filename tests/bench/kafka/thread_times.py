"""Processor time of a process by what its threads are there for: Linux tells it of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import psutil

__all__ = ["REST", "ThreadTimes", "kind_of"]

REST = "the rest"

_KINDS = {
    "requests": ("RpcServer.", "data-plane-kafk"),
    "network": ("RS-EventLoop", "NettyServer", "default-event"),
    "the log": ("AsyncFSWAL", "AsyncFSOutput", "FSHLog", "sync.", "WAL-", "log-", "LogRoller"),
    "flushes": ("MemStoreFlusher", "rs(", "member: '"),
    "compactions, chores": ("regionserver/", "kafka-scheduler", "kafka-log-clean"),
    "garbage collection": ("GC Thread", "G1 ", "CMS", "Concurrent Mark", "VM Thread"),
    "the JVM's compilers": ("C1 Compiler", "C2 Compiler"),
}
"""How names of threads begin, as far as Linux keeps them: 15 characters."""


def kind_of(thread: str) -> str:
    """What a thread of this name does."""
    return next((kind for kind, begins in _KINDS.items() if thread.startswith(begins)), REST)


class ThreadTimes:
    """What each kind of a process's threads has used. One thread at a time.

    Some threads end soon: HBase writes each file of its log by one of its own. What such a thread
    used is known up to the last `look` while it lived; what it used after that is with the rest.

    Args:
        pid: the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._process = psutil.Process(pid)
        self._seen: dict[int, tuple[str, float, float]] = {}
        """Of each thread its kind, and what it had used, in user and system mode: in seconds."""

    def look(self) -> None:
        """Take in what the threads that live have used so far."""
        for thread in self._process.threads():
            try:
                name = Path(f"/proc/{self._pid}/task/{thread.id}/comm").read_text(encoding="utf-8")
            except (FileNotFoundError, ProcessLookupError):
                continue
            self._seen[thread.id] = (kind_of(name), thread.user_time, thread.system_time)

    def spent_ms(self) -> Mapping[tuple[str, str], float]:
        """What was used until now, as (kind, ``user`` or ``system``): in ms."""
        whole = self._process.cpu_times()
        self.look()
        times: defaultdict[tuple[str, str], float] = defaultdict(float)
        times[REST, "user"], times[REST, "system"] = whole.user * 1e3, whole.system * 1e3
        for kind, user_s, system_s in self._seen.values():
            for mode, used_s in (("user", user_s), ("system", system_s)):
                times[kind, mode] += used_s * 1e3
                times[REST, mode] -= used_s * 1e3
        return times
