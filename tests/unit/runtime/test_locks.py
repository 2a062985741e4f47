"""Locks are taken in one way, which a handler of a signal can't interrupt: see
`hqueue.runtime.held`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hqueue
import hqueue_workers
import pyspark_hqueue

ROOTS = [Path(each.__path__[0]) for each in (hqueue, hqueue_workers, pyspark_hqueue)]
FILES = {
    str(Path(root.name) / path.relative_to(root)): path
    for root in ROOTS
    for path in sorted(root.rglob("*.py"))
}
OTHERWISE = {
    "hqueue/runtime/held.py": "the one place",
    "hqueue/runtime/waiting.py": "a waiter's own, which nobody else waits for",
    "hqueue/zookeeper/courier.py": "its thread holds it for as long as it lives",
    "hqueue/hbase/native/connection.py": "a call's signal: what waits for it releases nothing",
    "hqueue/push/loop_service.py": "an event loop's, which coroutines wait for",
    "hqueue_workers/console/pages/messages.py": "an event loop's, which coroutines wait for",
    "hqueue/aio/topic_managers.py": "an election, no lock",
    "hqueue_workers/hub/owning/queue_topics.py": "a topic's record, no lock",
    "hqueue_workers/hub/owning/topic_records.py": "an election, no lock",
}
PLAIN = {
    "hqueue/runtime/turn.py": "a place's, which the one holds whose place it is",
    "hqueue/consume/scan_reading.py": "a generator that runs is refused before its lock is taken",
    "hqueue/runtime/waiting.py": "a waiter's own, which another releases",
    "hqueue/consume/topic_past.py": "waited for within the bound of an operation",
    "hqueue/zookeeper/courier.py": "its thread holds it for as long as it lives",
    "hqueue/hbase/native/connection.py": "waited for within the bound of a request, or not at all",
    "hqueue/exactly_once.py": "nobody waits for it",
    "hqueue/produce/header_reaper.py": "nobody waits for it",
    "hqueue/share_consumer.py": "nobody waits for it",
    "hqueue/push/append_notifier.py": "nobody waits for it",
    "hqueue/push/service.py": "a server's threads wait for it within a bound",
}
"""Locks that the thread which holds them can't take again."""
SERVED = {"hqueue/rpc/messages.py": "what a server answers; its threads run no handlers"}
MADE = {"Semaphore", "BoundedSemaphore"}
"""Their `__enter__` is a function in Python."""
STANDARD = {
    "threading.Condition",
    "threading.Event",
    "concurrent.futures.Future",
    "concurrent.futures.wait",
    "futures.Future",
    "futures.wait",
}
"""What `hqueue.runtime.waiting` has in another way, for what a program's thread may wait for."""


def acquisitions(tree: ast.AST) -> Iterator[int]:
    """The lines where something is acquired by a call, or `acquire` is passed on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "acquire":
            yield node.lineno


def entered(tree: ast.AST) -> Iterator[int]:
    """The lines where a `with` enters a condition or a semaphore that the file makes."""
    made = {
        _name(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and _name(node.value.func) in MADE
        and not ast.unparse(node.value.func).startswith("asyncio.")
        for target in node.targets
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            for item in node.items:
                if _name(item.context_expr) in made:
                    yield node.lineno


def standard(tree: ast.AST) -> Iterator[int]:
    """The lines where a condition, an event or a future of the standard library is made, or its
    futures are waited for.
    """
    names = {
        each.asname or each.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if f"{node.module}.{each.name}" in STANDARD
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in STANDARD | names:
            yield node.lineno


def plain(tree: ast.AST) -> Iterator[int]:
    """The lines where a lock is made that its holder can't take again."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            values = [node.func, *node.args, *(each.value for each in node.keywords)]
            if {"threading.Lock", "_thread.allocate_lock"} & set(map(ast.unparse, values)):
                yield node.lineno


def _name(node: ast.expr) -> str:
    """The last part of a dotted name; empty for anything else."""
    return (
        ast.unparse(node).rpartition(".")[2] if isinstance(node, ast.Attribute | ast.Name) else ""
    )


@pytest.mark.parametrize("name", FILES)
def test_a_lock_is_held_by_with_or_by_what_the_library_has_for_it(name: str) -> None:
    tree = ast.parse(FILES[name].read_text())
    assert name in OTHERWISE or not list(acquisitions(tree))
    assert not list(entered(tree))


@pytest.mark.parametrize(
    "name", [name for name in FILES if name.startswith("hqueue/") and name not in SERVED]
)
def test_what_a_program_waits_for_may_be_interrupted(name: str) -> None:
    assert not list(standard(ast.parse(FILES[name].read_text())))


@pytest.mark.parametrize(
    "name", [name for name in FILES if name.startswith("hqueue/") and "/cli/" not in name]
)
def test_a_handler_or_a_finalizer_does_not_wait_for_a_lock_of_what_it_interrupts(name: str) -> None:
    assert bool(list(plain(ast.parse(FILES[name].read_text())))) == (name in PLAIN)


@pytest.mark.parametrize("name", SERVED)
def test_each_future_of_a_server_is_one_still(name: str) -> None:
    assert list(standard(ast.parse(FILES[name].read_text())))


@pytest.mark.parametrize("name", OTHERWISE)
def test_each_exception_is_one_still(name: str) -> None:
    assert list(acquisitions(ast.parse(FILES[name].read_text())))


def test_what_is_looked_for_is_found() -> None:
    text = (
        "class A:\n"
        "    def __init__(self):\n"
        "        self._lock = threading.Lock()\n"
        "        self._work = threading.Semaphore()\n"
        "    def f(self):\n"
        "        with self._work:\n"
        "            pass\n"
        "        with self._lock:\n"
        "            self.other.acquire(timeout=1)\n"
        "        held.extend(map(lock.acquire, once))\n"
    )
    tree = ast.parse(text)
    assert list(standard(ast.parse("from concurrent.futures import Future as F\nF()"))) == [2]
    assert list(standard(ast.parse("from concurrent.futures import wait\nwait([])"))) == [2]
    assert list(standard(ast.parse("threading.Event()"))) == [1]
    assert list(plain(tree)) == [3]
    assert list(plain(ast.parse("field(default_factory=threading.Lock)"))) == [1]
    assert list(entered(tree)) == [6]
    assert sorted(acquisitions(tree)) == [9, 10]
