"""Which session at ZooKeeper owns which ephemeral nodes, and how much goes into a transaction."""

from __future__ import annotations

import random

import pytest
from kazoo.client import KazooClient, TransactionRequest
from kazoo.protocol.serialization import Transaction
from kazoo.security import OPEN_ACL_UNSAFE

from hqueue import MessageID, Settings
from hqueue.metadata import SubscriptionKey
from hqueue.metadata.encoding import encode_checkpoint
from hqueue.metadata.paths import Paths
from hqueue.metadata.ports import GuardedWrite
from hqueue.settings.limits import MESSAGE_ID_MAX, QUEUE_NAME_LENGTH_MAX
from hqueue.zookeeper.allocation import SESSION_BYTES_MAX, Allocation
from hqueue.zookeeper.ephemerals import ZooKeeperEphemerals, batches, guarded_write
from hqueue.zookeeper.session import TRANSACTION_BYTES_MAX, Session

GROUP = ("/a/topics", "/a/address")
GROUP_BYTES = sum(4 + len(path) for path in GROUP)


def group(number: int) -> tuple[str, str]:
    return f"/{number:04d}/topics", f"/{number:04d}/address"


def test_nodes_fill_one_session_before_the_next_is_opened() -> None:
    allocation = Allocation(100)
    size = sum(4 + len(path) for path in group(0))
    per_session = 100 // size
    placed = [allocation.allocate(group(number)) for number in range(3 * per_session)]
    assert placed == [number // per_session for number in range(3 * per_session)]
    assert list(allocation.bytes_by_session) == [per_session * size] * 3


def test_a_group_is_not_parted_and_counts_every_byte_that_its_end_takes() -> None:
    allocation = Allocation(GROUP_BYTES, prefix_bytes=3)
    assert allocation.allocate(GROUP) == 0
    assert list(allocation.bytes_by_session) == [GROUP_BYTES + 2 * 3]
    assert {allocation.holder(path) for path in GROUP} == {0}
    umlauts = Allocation()
    umlauts.allocate(["/ä"])
    assert list(umlauts.bytes_by_session) == [4 + 3]


def test_a_group_that_is_larger_than_the_bound_has_a_session_alone() -> None:
    allocation = Allocation(10)
    assert [allocation.allocate(group(number)) for number in range(3)] == [0, 1, 2]


def test_what_is_placed_again_stays_where_it_is_and_counts_once() -> None:
    allocation = Allocation(GROUP_BYTES)
    allocation.allocate(GROUP)
    assert allocation.allocate(["/b"]) == 1
    assert allocation.allocate(GROUP) == 0
    assert list(allocation.bytes_by_session) == [GROUP_BYTES, 6]


def test_what_is_gone_makes_room_so_that_churn_opens_no_sessions() -> None:
    allocation = Allocation(100)
    for number in range(1_000):
        allocation.allocate([f"/{number:04d}"])
        if number >= 10:
            allocation.settle(f"/{number - 10:04d}", None)
    assert len(allocation.bytes_by_session) == 1
    assert allocation.bytes_by_session[0] == 10 * 9
    assert allocation.holder("/0000") is None
    allocation.settle("/0000", None)
    assert allocation.bytes_by_session[0] == 10 * 9


def test_what_another_session_turns_out_to_own_counts_there() -> None:
    allocation = Allocation(GROUP_BYTES)
    allocation.allocate(GROUP)
    allocation.allocate(["/b"])
    allocation.settle("/b", 0)
    assert list(allocation.bytes_by_session) == [GROUP_BYTES + 6, 0]
    assert allocation.holder("/b") == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_count_of_each_session_is_always_that_of_the_nodes_placed_with_it(seed: int) -> None:
    generator = random.Random(seed)
    allocation = Allocation(200)
    placed: dict[str, int] = {}
    for _ in range(2_000):
        paths = group(generator.randrange(60))
        if generator.random() < 0.5:
            session = allocation.allocate(paths)
            placed |= dict.fromkeys(paths, session)
        else:
            path = generator.choice(paths)
            allocation.settle(path, None)
            placed.pop(path, None)
        assert {path: allocation.holder(path) for path in placed} == placed
        for session, counted in enumerate(allocation.bytes_by_session):
            assert counted == sum(4 + len(p) for p, holder in placed.items() if holder == session)
            assert counted <= 200


def test_a_subscriber_of_the_largest_queue_needs_few_sessions_of_a_quarter_megabyte() -> None:
    allocation, paths = Allocation(), Paths("/hqueue")
    for partition in range(32_000):
        key = SubscriptionKey("events", partition, "indexer")
        allocation.allocate([paths.topics(key), paths.address(key)])
    assert max(allocation.bytes_by_session) <= SESSION_BYTES_MAX
    assert len(allocation.bytes_by_session) == 12


def test_250_checkpoints_of_the_longest_names_are_set_together_within_the_bound() -> None:
    paths = Paths("/" + "r" * 199)
    long = "n" * QUEUE_NAME_LENGTH_MAX
    keys = [SubscriptionKey(long, 32_000 + number, long) for number in range(600)]
    last = encode_checkpoint(MessageID.from_int(MESSAGE_ID_MAX))
    writes = [GuardedWrite(paths.subscriber(key), last, paths.address(key)) for key in keys]
    cut = list(batches(writes, ZooKeeperEphemerals(Session(Settings())).write_bytes))
    assert [write for batch in cut for write in batch] == writes
    assert len(cut[0]) >= 250
    for batch in cut:
        transaction = TransactionRequest(KazooClient(default_acl=OPEN_ACL_UNSAFE))
        for write in batch:
            guarded_write(write, transaction)
        assert len(Transaction(transaction.operations).serialize()) <= TRANSACTION_BYTES_MAX
