"""A consumer's part in its group, over memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import PartitionKey
from hqueue.groups import Callbacks, ConsumerSettings, Consumption, Selection
from tests.support.backends import MemoryBackend
from tests.support.waiting import wait_for

PARTITIONS = 4


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as connected:
        connected.create_queue("q", partitions=PARTITIONS)
        yield connected


@pytest.fixture
def join(client: hqueue.Client) -> Iterator[Callable[..., Consumption]]:
    """Consumers of one group, each with a session of its own."""
    with contextlib.ExitStack() as stack:

        def join_one(callbacks: Callbacks | None = None) -> Consumption:
            made = Consumption(client.cluster, "g", ConsumerSettings())
            stack.callback(made.close, commit=False)
            made.subscribe(Selection(frozenset({"q"})), (), callbacks or Callbacks())
            return made

        yield join_one


def claimed(consumption: Consumption) -> int:
    """How many partitions somebody of its group has taken over."""
    offsets = consumption.place.offsets()
    assert offsets is not None
    return len(offsets.list())


def test_what_it_got_and_was_to_give_up_before_it_looked_is_not_its_own(
    join: Callable[..., Consumption],
) -> None:
    called: list[tuple[str, list[PartitionKey]]] = []
    first = join(
        Callbacks(
            lambda keys: called.append(("assigned", keys)),
            lambda keys: called.append(("revoked", keys)),
        )
    )
    stream = first.streams[0]
    wait_for(lambda: claimed(first) == PARTITIONS and stream.attention, "it has claimed all")
    stream.attention = False
    second = join()
    wait_for(lambda: stream.attention, "it is to give some up")

    def shared() -> bool:
        for each in (first, second):
            each.refill(each.streams[0], 0)
        had, others = first.positions.keys(), second.positions.keys()
        return len(had) == len(others) == PARTITIONS // 2 and had.isdisjoint(others)

    wait_for(shared, "each has half", timeout_s=20)
    assert called == [("assigned", sorted(first.positions.keys()))]
