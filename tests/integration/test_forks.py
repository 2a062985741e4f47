"""Forked children and their parents use the same client without disturbing each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hqueue
from hqueue import Message
from tests.support.history import Seen, check, seen_by

from .running import Program

MakeQueue = Callable[..., hqueue.Queue]


def test_parent_and_child_go_on_with_the_same_client_queue_and_scan(
    make_queue: MakeQueue, process_environment: dict[str, str]
) -> None:
    queue = make_queue(2)
    before = [
        Seen(0, int(queue.put(Message("t", b"before:%03d" % n), partition=0)), f"before:{n:03d}")
        for n in range(300)
    ]
    with Program("fork", queue.name, environment=process_environment) as program:
        written = [Seen.parse(line) for line in program.result()]
    assert len(written) == 5 * 60 + 2
    check([*before, *written], seen_by(queue.scan()))


@pytest.mark.in_memory_first
def test_a_pool_of_forked_processes_writes_beside_a_writing_thread_of_the_parent(
    make_queue: MakeQueue, process_environment: dict[str, str]
) -> None:
    queue = make_queue()
    with Program("pool", queue.name, environment=process_environment) as program:
        written = [Seen.parse(line) for line in program.result()]
    assert len({seen.value.partition(":")[0] for seen in written}) == 9
    check(written, seen_by(queue.scan()))


def test_a_child_that_reads_an_open_scan_takes_nothing_from_its_parent(
    make_queue: MakeQueue, process_environment: dict[str, str]
) -> None:
    queue = make_queue()
    for n in range(300):
        queue.put(Message("t", b"%03d" % n))
    with Program("fork_scan", queue.name, environment=process_environment) as program:
        assert program.result() == ["300"]


def test_a_forked_child_has_a_session_of_its_own_and_leaves_its_parents_alone(
    make_queue: Callable[..., hqueue.Queue], server_environment: dict[str, str]
) -> None:
    queue = make_queue()
    with Program("fork_coordination", queue.name, environment=server_environment) as program:
        assert program.result() == ["child 2 parent 1"]
