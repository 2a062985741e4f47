"""Memory is bounded by what was asked for, not by what lies in the queue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import Message

from .running import Program

MakeQueue = Callable[..., hqueue.Queue]
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def large_queue(client: hqueue.Client) -> Iterator[hqueue.Queue]:
    """1,000 tiny batches, then 200 MB in batches of up to 8 MiB, over two partitions."""
    name = "memory-large"
    queue = client.create_queue(name, partitions=2)
    for n in range(1_000):
        queue.put(Message("t", b"tiny"), partition=n % 2)
    noise = os.urandom(8 * MIB)
    for n in range(20):
        queue.put(Message("t", noise), partition=n % 2)
        queue.put([Message("t", noise[:1_000])] * 2_000, partition=n % 2)
    yield queue
    client.disable_queue(name)
    client.delete_queue(name)


def growth(lines: list[str]) -> int:
    return int(lines[-1].removeprefix("growth "))


@pytest.mark.parametrize(("what", "mib_max"), [("scan", 144), ("merge", 64), ("arrow", 144)])
def test_a_scan_of_200_mb_holds_some_batches_at_a_time(
    large_queue: hqueue.Queue, server_environment: dict[str, str], what: str, mib_max: int
) -> None:
    # Reading ahead, a batch of each partition is on its way, in pieces and put together, while a
    # third is used: 40 MiB. And of what was freed glibc keeps up to 16 MiB for each of the threads.
    with Program("memory", what, large_queue.name, environment=server_environment) as program:
        lines = program.result()
    read = int(lines[0].removeprefix("read "))
    assert read >= 200_000_000
    assert growth(lines) < mib_max * MIB


def test_a_producer_holds_what_its_buffer_may(
    make_queue: MakeQueue, server_environment: dict[str, str]
) -> None:
    queue = make_queue(2)
    with Program("memory", "produce", queue.name, environment=server_environment) as program:
        assert growth(program.result()) < 64 * MIB
    assert sum(each.count for each in queue.offsets()) == 1_501


@pytest.mark.thorough("half a thousand partitions, 5 s")
def test_a_follower_of_many_partitions_that_fell_behind_takes_them_bit_by_bit(
    make_queue: MakeQueue, server_environment: dict[str, str]
) -> None:
    queue = make_queue(20, partitions_per_region=20)
    for partition in range(20):
        queue.put(Message("t", b"first"), partition=partition)
    with Program("memory", "follow", queue.name, environment=server_environment) as program:
        program.await_ready()
        for partition in range(20):
            queue.put(Message("t", os.urandom(8 * MIB - 1_000)), partition=partition)
        program.begin()
        lines = program.result()
    assert int(lines[0].removeprefix("read ")) == 20 * (8 * MIB - 1_000)
    assert growth(lines) < 64 * MIB
