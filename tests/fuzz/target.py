"""A target: a strategy for its inputs, and what has to hold for each of them."""

from __future__ import annotations

import dataclasses
import faulthandler
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import hypothesis
from hypothesis import strategies as st

__all__ = ["Target", "fuzz"]

Case = TypeVar("Case")

ADDRESSES_MORE_BYTES = 768 * 1024 * 1024
"""So much address space may come on top of what the process has: the stacks of some threads and
the largest batch many times, but not what a length field of 4 GiB asks for."""

MEMORY_MORE_KIB = 256 * 1024
"""By so much one execution may raise the process's peak of memory. The bound on addresses alone
would not do: in `hqueue.hbase` also a `MemoryError` becomes a request that failed."""

EXECUTION_S_MAX = 10.0
"""What takes longer hangs: every wait of a target is set to a fraction of it."""
HANG_S = 120.0
"""What takes so long is ended from outside, with the stacks of all threads."""


@dataclasses.dataclass(frozen=True)
class Target(Generic[Case]):
    """Something that takes bad input.

    Args:
        name: what it is called on the command line.
        inputs: its inputs, bad ones above all.
        check: executes it. A bug is any error that it raises: what the library may raise, an
            `HQueueError`, it catches itself.
    """

    name: str
    inputs: st.SearchStrategy[Case]
    check: Callable[[Case], None]


def fuzz(target: Target[Any], seed: int, executions: int) -> int:
    """Execute a target with so many inputs, all decided by the seed; how many there were.

    Raises:
        Exception: what the target raised for the smallest input that was found to raise it; its
            notes show that input. `MemoryError`: it asked for memory without bound.
        AssertionError: an execution took longer than 10 s, or 256 MiB.
    """
    done = 0

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=executions,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        print_blob=False,
    )
    @hypothesis.given(target.inputs)
    def execute(case: object) -> None:
        nonlocal done
        done += 1
        began_s, before_kib = time.monotonic(), _peak_kib()
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        try:
            target.check(case)
        finally:
            faulthandler.cancel_dump_traceback_later()
        took_s, took_kib = time.monotonic() - began_s, _peak_kib() - before_kib
        assert took_s < EXECUTION_S_MAX, f"it took {took_s:.1f} s"
        assert took_kib < MEMORY_MORE_KIB, f"it took {took_kib} KiB"

    with _bounded_memory():
        execute()
    return done


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """Let an allocation without bound raise `MemoryError` instead of taking the machine's."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        now_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (now_bytes + ADDRESSES_MORE_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
