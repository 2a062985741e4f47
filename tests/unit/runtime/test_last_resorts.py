"""No thread of the library is started, or ends, unnoticed: see `hqueue.runtime.threads` and
`hqueue.runtime.foreign`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.unit.runtime.test_locks import FILES

LETS_OTHERS_PASS = {
    "hqueue/runtime/ending.py": "at the end of a program Ctrl-C ends it",
    "hqueue/rpc/messages.py": "what is no `Exception` ends the call above",
    "hqueue/cli/commands/shipment.py": "a callback of `hqueue put` itself",
    "hqueue_workers/delivery/notification_server.py": "what is no `Exception` is its port's",
    "pyspark_hqueue/jobs/sessions.py": "an interrupted start of Spark has nothing to show",
    "pyspark_hqueue/jobs/rounds.py": "in a thread of Spark, which learns of it",
    "pyspark_hqueue/jobs/archive.py": "in a thread of Spark likewise",
}


def starts(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "threading.Thread",
            "Thread",
            "threading.Timer",
            "Timer",
            "ThreadPoolExecutor",
        ):
            yield node.lineno


def last_resorts(tree: ast.AST) -> Iterator[int]:
    """Handlers of any `Exception` beside which nothing handles a `BaseException`, and which don't
    ask whether a handler of a signal raised it.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            kinds = [ast.unparse(each.type) for each in node.handlers if each.type is not None]
            for each, kind in zip(node.handlers, kinds, strict=False):
                asks = "is_interruption" in ast.unparse(each)
                if kind == "Exception" and "BaseException" not in kinds and not asks:
                    yield each.lineno


@pytest.mark.parametrize("name", FILES)
def test_threads_are_started_in_one_way(name: str) -> None:
    found = list(starts(ast.parse(FILES[name].read_text())))
    assert name == "hqueue/runtime/threads.py" or not found


@pytest.mark.parametrize("name", FILES)
def test_a_last_resort_takes_whatever_is_raised_or_says_why_not(name: str) -> None:
    found = list(last_resorts(ast.parse(FILES[name].read_text())))
    assert bool(found) == (name in LETS_OTHERS_PASS), found
