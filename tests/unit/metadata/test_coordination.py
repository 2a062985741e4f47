"""Where all that push delivery needs lies, as what bytes, and what is made of wrong ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import pytest

from hqueue import DeliveryOptions, HQueueError, InvalidInputError, MessageID, RequestRefusedError
from hqueue.errors import (
    CheckpointMovedError,
    SubscriberConnectedError,
    SubscriberNotFoundError,
    UnsupportedFormatError,
)
from hqueue.metadata import Address, PartitionKey, Presence, SubscriptionKey, WorkerRecord
from hqueue.metadata.append_keys import AppendKey, AppendKeys
from hqueue.metadata.encoding import encode_append_keys
from hqueue.metadata.ports import ANY, NEW, VALUE_BYTES_MAX, Change
from tests.support.doubles import SteppedClock
from tests.support.memory.metadata import MemoryCoordination, MemoryServer
from tests.support.waiting import wait_for

HERE, THERE = Address("127.0.0.1", 5_001), Address("127.0.0.1", 5_002)
KEY = SubscriptionKey("q", 3, "s")
WORKER = WorkerRecord("w", HERE, "rs1", 7)
FIRST = AppendKeys(AppendKey(b"\x01" * 8, b"\x02" * 32, 5))


@pytest.fixture
def metadata_server() -> MemoryServer:
    return MemoryServer(clock=SteppedClock(), session_timeout_ms=2_000)


@pytest.fixture
def one(metadata_server: MemoryServer) -> MemoryCoordination:
    return MemoryCoordination(metadata_server)


def fail(error: HQueueError) -> None:
    raise AssertionError(f"a registration failed: {error}")


def write(coordination: MemoryCoordination, path: str, value: bytes) -> None:
    """As a foreign program could."""
    records = coordination.store.records
    records.write({path: Change(value, ANY if records.read([path]) else NEW)})


def test_all_of_it_lies_where_the_docs_draw_it_as_the_bytes_that_they_show(
    one: MemoryCoordination,
) -> None:
    one.checkpoints.create({KEY: MessageID(1_700_000_000_000, 7)})
    delivery = DeliveryOptions(delay_ms=500)
    presence = Presence(HERE, frozenset({"clicks"}), delivery)
    one.subscriptions.register("q", "s", presence, [3], fail)
    one.workers.register(WORKER, fail)
    one.owners.claim("w", [PartitionKey("q", 3)])
    one.append_keys.replace(None, FIRST)
    records = one.store.records
    found = {
        key: record.value
        for depth in range(1, 7)
        for key, record in records.list("", depth).items()
    }
    topics = found.pop("/hqueue/queues/q/3/s/topics")
    assert topics.startswith(b'{"version": 1, "topics": ["clicks"], "delivery": {"attempts_max"')
    assert found == {
        "/hqueue/queues/q/3/s": b'{"version": 1, "next": "1700000000000-7"}',
        "/hqueue/queues/q/3/s/address": b'{"version": 1, "address": "127.0.0.1:5001"}',
        "/hqueue/hosts/w": b'{"version": 1, "address": "127.0.0.1:5001", "region_host": "rs1",'
        b' "load": 7}',
        "/hqueue/owners/q/3": b'{"version": 1, "worker": "w"}',
        "/hqueue/secrets/appends": b'{"version": 1, "keys": [{"id": "%s", "secret": "%s",'
        b' "created_ms": 5}]}' % (b"01" * 8, b"02" * 32),
    }


# Views


def test_a_subscriber_without_topics_wants_all_and_one_without_an_address_is_not_present(
    one: MemoryCoordination,
) -> None:
    one.checkpoints.create({KEY: MessageID(0), KEY._replace(subscriber="t"): MessageID(0)})
    write(one, "/hqueue/queues/q/3/s/address", b'{"version": 1, "address": "127.0.0.1:5001"}')
    write(one, "/hqueue/queues/q/3/t/topics", b'{"version": 1, "topics": null}')
    listed = one.subscriptions.list("q")
    present = listed[KEY]
    assert present is not None
    assert (present.address, present.topics, present.delivery) == (HERE, None, DeliveryOptions())
    assert listed[KEY._replace(subscriber="t")] is None
    assert one.subscriptions.list() == listed


def test_a_presence_that_is_made_again_differs_and_one_that_stays_does_not(
    metadata_server: MemoryServer, one: MemoryCoordination
) -> None:
    other = MemoryCoordination(metadata_server)
    one.checkpoints.create({KEY: MessageID(0)})
    one.subscriptions.register("q", "s", Presence(HERE), [3], fail)
    first = other.subscriptions.list("q")[KEY]
    assert other.subscriptions.list("q")[KEY] == first
    one.store.expire()
    wait_for(lambda: other.subscriptions.list("q")[KEY], "it is present again")
    again = other.subscriptions.list("q")[KEY]
    assert again is not None
    assert first is not None
    assert again.revision > first.revision
    write(other, "/hqueue/queues/q/3/s/topics", b'{"version": 1, "topics": ["t"]}')
    changed = other.subscriptions.list("q")[KEY]
    assert changed is not None
    assert changed.revision > again.revision


class Wrong(NamedTuple):
    """A record that can't be read, what it should be, and who looks at it."""

    path: str
    wrong: bytes
    right: bytes
    watch: Callable[[MemoryCoordination, Callable[[int], None]], object]
    warning: str
    beside: str = ""
    """Another case whose right record is there already."""


WRONG = {
    "address": Wrong(
        "/hqueue/queues/q/3/s/address",
        b'{"version": 2}',
        b'{"version": 1, "address": "127.0.0.1:5001"}',
        lambda it, tell: it.subscriptions.watch(lambda view: tell(len(view))),
        "the record of a subscriber can't be read, and is left out: a record has a "
        "version that this release does not know [path='/hqueue/queues/q/3/s/address', version=2]",
    ),
    "topics": Wrong(
        "/hqueue/queues/q/3/s/topics",
        b'{"version": 1, "topics": []}',
        b'{"version": 1, "topics": null}',
        lambda it, tell: it.subscriptions.watch(lambda view: tell(len(view))),
        "the record of a subscriber can't be read, and is left out: a record of version 1 "
        "lacks a field, or has a wrong one [path='/hqueue/queues/q/3/s/topics', "
        "reason='InvalidInputError: topics is empty",
        beside="address",
    ),
    "worker": Wrong(
        "/hqueue/hosts/s",
        b"?",
        b'{"version": 1, "address": "127.0.0.1:1", "region_host": "", "load": 0}',
        lambda it, tell: it.workers.watch(lambda view: tell(len(view))),
        "the record of a worker can't be read, and is left out: this node or row is not a "
        "record of hqueue [path='/hqueue/hosts/s']",
    ),
    "owner": Wrong(
        "/hqueue/owners/q/3",
        b'{"version": 1}',
        b'{"version": 1, "worker": "w"}',
        lambda it, tell: it.owners.watch(lambda view: tell(len(view))),
        "the record of a claim can't be read, and is left out: a record of version 1 "
        "lacks a field, or has a wrong one [path='/hqueue/owners/q/3', "
        "reason=\"KeyError: 'worker'\"]",
    ),
    "keys": Wrong(
        "/hqueue/secrets/appends",
        b'{"version": 1, "keys": []}',
        encode_append_keys(FIRST),
        lambda it, tell: it.append_keys.watch(lambda keys: tell(int(keys is not None))),
        "the record of the key of notifications can't be read, and is left out: a record "
        "of version 1 lacks a field",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_record_that_can_not_be_read_is_left_out_and_logged_until_it_can(
    one: MemoryCoordination, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    case = WRONG[kind]
    one.checkpoints.create({KEY: MessageID(0)})
    told: list[int] = []
    with caplog.at_level(logging.WARNING):
        if case.beside:
            write(one, WRONG[case.beside].path, WRONG[case.beside].right)
        write(one, case.path, case.wrong)
        case.watch(one, told.append)
        wait_for(lambda: told, "the first view")
    assert told == [0]
    assert case.warning in caplog.text
    write(one, case.path, case.right)
    wait_for(lambda: told[-1] == 1, "it is seen when it can be read")


def test_what_hqueue_did_not_make_is_passed_over_in_silence(
    one: MemoryCoordination, caplog: pytest.LogCaptureFixture
) -> None:
    one.checkpoints.create({KEY: MessageID(0)})
    one.owners.claim("w", [PartitionKey("q", 3)])
    for path in ("queues/q/x/y/address", "queues/q/3/s/more", "owners/q/x", "owners/q/3/4"):
        write(one, f"/hqueue/{path}", b"?")
    write(one, "/hqueue/secrets/another", b"?")
    told: list[object] = []
    with caplog.at_level(logging.WARNING):
        assert one.subscriptions.list() == {KEY: None}
        assert one.owners.list() == {PartitionKey("q", 3): "w"}
        one.subscriptions.watch(told.append)
        one.append_keys.watch(told.append)
        wait_for(lambda: len(told) == 2, "both views")
    assert sorted(map(str, told)) == ["None", "{}"]
    assert caplog.text == ""


# Checkpoints


def test_a_checkpoint_that_can_not_be_read_is_an_error_that_names_it_and_is_not_overwritten(
    one: MemoryCoordination,
) -> None:
    path, other = "/hqueue/queues/q/3/s", KEY._replace(partition=4)
    write(one, path, b'{"version": 2}')
    created = one.checkpoints.create({KEY: MessageID(0), other: MessageID(7)})
    assert {key: each.next for key, each in created.items()} == {other: MessageID(7)}
    for keys in ([KEY], [other, KEY]):
        with pytest.raises(UnsupportedFormatError) as caught:
            one.checkpoints.read_many(keys)
        assert caught.value.path == path
    with pytest.raises(UnsupportedFormatError, match="version"):
        one.checkpoints.read(KEY)
    found, unreadable = one.checkpoints.inspect([KEY, other])
    assert found == created
    assert [(key, error.path) for key, error in unreadable.items()] == [(KEY, path)]


def test_what_stands_in_the_way_of_a_seek_or_a_deletion_is_named(one: MemoryCoordination) -> None:
    other = KEY._replace(partition=4)
    one.checkpoints.create({KEY: MessageID(5), other: MessageID(5)})
    one.subscriptions.register("q", "s", Presence(HERE), [4], fail)
    starts = {KEY: MessageID(1), other: MessageID(1)}
    for operation in (
        lambda: one.checkpoints.seek(starts),
        lambda: one.checkpoints.delete([other]),
    ):
        with pytest.raises(SubscriberConnectedError) as connected:
            operation()
        assert connected.value.facts == other._asdict()
    missing = KEY._replace(subscriber="nobody")
    with pytest.raises(SubscriberNotFoundError) as absent:
        one.checkpoints.seek({KEY: MessageID(1), missing: MessageID(1)})
    assert absent.value.facts == missing._asdict()
    assert {c.next for c in one.checkpoints.read_many(starts).values()} == {MessageID(5)}


def test_a_checkpoint_that_another_moved_is_an_error_that_names_it(one: MemoryCoordination) -> None:
    known = one.checkpoints.create({KEY: MessageID(0)})[KEY]
    one.checkpoints.compare_and_set(KEY, known, MessageID(1))
    with pytest.raises(CheckpointMovedError) as moved:
        one.checkpoints.compare_and_set(KEY, known, MessageID(1))
    assert moved.value.facts == KEY._asdict()


# Registrations


def test_a_name_that_stays_another_s_is_an_error_that_shows_whose(
    metadata_server: MemoryServer, one: MemoryCoordination
) -> None:
    other = MemoryCoordination(metadata_server)
    one.checkpoints.create({KEY: MessageID(0)})
    one.subscriptions.register("q", "s", Presence(HERE), [3], fail)
    one.workers.register(WORKER, fail)
    with pytest.raises(SubscriberConnectedError) as connected:
        other.subscriptions.register("q", "s", Presence(THERE), [3], fail)
    assert connected.value.path == "/hqueue/queues/q/3/s/address"
    assert "127.0.0.1:5001" in str(connected.value.record)
    with pytest.raises(RequestRefusedError) as taken:
        other.workers.register(WorkerRecord("w", THERE, "rs1"), fail)
    assert taken.value.path == "/hqueue/hosts/w"
    assert '"region_host": "rs1"' in str(taken.value.record)


def test_a_name_whose_record_can_not_be_read_is_not_taken_for_one_s_own(
    metadata_server: MemoryServer, one: MemoryCoordination
) -> None:
    other = MemoryCoordination(metadata_server)
    one.checkpoints.create({KEY: MessageID(0)})
    one.store.ephemerals.claim({"/hqueue/queues/q/3/s/address": b"?", "/hqueue/hosts/w": b"?"})
    with pytest.raises(SubscriberConnectedError):
        other.subscriptions.register("q", "s", Presence(HERE), [3], fail)
    with pytest.raises(RequestRefusedError):
        other.workers.register(WORKER, fail)


def test_a_worker_at_the_same_address_takes_its_name_over_at_once_and_keeps_its_load(
    metadata_server: MemoryServer, one: MemoryCoordination
) -> None:
    other = MemoryCoordination(metadata_server)
    one.workers.register(WORKER, fail)
    one.store.suspend()  # Its process is dead, for the other one listens there.
    other.workers.register(WorkerRecord("w", HERE, "rs2", 1), fail)
    assert metadata_server.clock.monotonic_ms() == 0
    other.workers.update(WorkerRecord("w", HERE, "rs2", 9))
    other.store.expire()
    wait_for(other.workers.list, "it is present again")
    assert other.workers.list() == {"w": WorkerRecord("w", HERE, "rs2", 9)}


def test_a_subscriber_without_partitions_or_with_endless_topics_is_refused(
    one: MemoryCoordination,
) -> None:
    one.checkpoints.create({KEY: MessageID(0)})
    with pytest.raises(InvalidInputError):
        one.subscriptions.register("q", "s", Presence(HERE), [], fail)
    long = frozenset(f"{number:0200}" for number in range(VALUE_BYTES_MAX // 200))
    with pytest.raises(InvalidInputError):
        one.subscriptions.register("q", "s", Presence(HERE, long), [3], fail)
    assert one.subscriptions.list() == {KEY: None}


# The keys of notifications


def test_keys_are_replaced_by_their_version_and_read_with_it(
    metadata_server: MemoryServer, one: MemoryCoordination
) -> None:
    other = MemoryCoordination(metadata_server)
    first = one.append_keys.replace(None, FIRST)
    assert first is not None
    assert (first.current, first.revision) == (FIRST.current, 0)
    second = other.append_keys.replace(first, first.renewed(6))
    assert second is not None
    assert one.append_keys.replace(first, first.renewed(7)) == second
    assert one.append_keys.replace(None, FIRST) == second
    one.store.records.delete({"/hqueue/secrets/appends": ANY})
    assert one.append_keys.replace(second, second.renewed(8)) is None


def test_keys_that_can_not_be_read_are_an_error_to_who_asks(one: MemoryCoordination) -> None:
    write(one, "/hqueue/secrets/appends", b'{"version": 99}')
    with pytest.raises(UnsupportedFormatError):
        one.append_keys.read()
