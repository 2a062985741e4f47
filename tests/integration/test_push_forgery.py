"""What a stranger sends to a worker's port is never delivered, and hides nothing that is real."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping

import pytest

import hqueue
from hqueue import Subscription, local
from hqueue.metadata import Address
from hqueue.metadata.append_keys import AppendKey, AppendKeys, sign
from hqueue.metadata.ports import ANY, Change
from hqueue.settings.limits import MESSAGE_ID_MAX
from tests.support.forging import Forged, forge, notification, send
from tests.support.waiting import wait_for

from .pushing import SESSION_MS, Received, WorkerProcess, put_numbers

Make = Callable[..., hqueue.Queue]
Start = Callable[..., WorkerProcess]

STRANGER = AppendKey.random(0)


@pytest.fixture
def silent(server: local.LocalServer, pushing: hqueue.Client) -> hqueue.Settings:
    """The settings of a producer that notifies nobody: what it puts only HBase tells."""
    return server.settings(
        zookeeper_root=pushing.settings.zookeeper_root,
        zookeeper_session_timeout_ms=SESSION_MS,
        notify_workers=False,
    )


def address_of(client: hqueue.Client, worker: WorkerProcess) -> Address:
    return client.coordination.workers.list()[worker.name].address


def keys_of(client: hqueue.Client) -> AppendKeys:
    keys = client.coordination.append_keys.read()
    assert keys is not None, "the first worker made none"
    return keys


def mac_of(key: AppendKey, queue: str, forged: Forged) -> bytes:
    return sign(key, queue, forged.partition, forged.slot, header=forged.header, cells=forged.cells)


def forgeries(client: hqueue.Client, queue: str, forged: Forged) -> dict[str, bytes]:
    """The same batch, vouched for in every way that a stranger could think of."""
    keys = keys_of(client)
    elsewhere = {
        "another queue": (f"{queue}-2", forged),
        "another partition": (queue, forged._replace(partition=forged.partition + 1)),
        "another slot": (queue, forged._replace(slot=forged.slot + 1)),
        "other bytes": (queue, forged._replace(cells={b"t": b"other"})),
    }
    macs = {what: mac_of(keys.current, *other) for what, other in elsewhere.items()}
    return {
        "no mac": notification(queue, forged),
        "no key": notification(queue, forged, None, mac_of(keys.current, queue, forged)),
        "a key of its own": notification(
            queue, forged, STRANGER.id, mac_of(STRANGER, queue, forged)
        ),
        "its own by the name of ours": notification(
            queue, forged, keys.current.id, mac_of(STRANGER, queue, forged)
        ),
        "a guess": notification(queue, forged, keys.current.id, secrets.token_bytes(32)),
        "an empty mac": notification(queue, forged, keys.current.id, b""),
        **{
            f"a mac of {what}": notification(queue, forged, keys.current.id, mac)
            for what, mac in macs.items()
        },
    }


def test_a_batch_that_a_stranger_made_is_not_delivered_and_the_real_one_at_its_slot_is(
    make: Make, start: Start, pushing: hqueue.Client, silent: hqueue.Settings
) -> None:
    queue = make(2)
    worker = start(poll_ms_max=100)
    got = Received()
    with hqueue.connect(silent) as client, queue.subscriber(Subscription("s"), got):
        putting = client.queue(queue.name)
        wait_for(lambda: worker.owns(queue) == {0, 1}, "the worker has the partitions")
        values = put_numbers(putting, range(4))
        got.await_values(values)
        address = address_of(pushing, worker)
        kinds = forgeries(pushing, queue.name, forge(queue.offsets([0])[0], [b"forged"]))
        for number, kind in enumerate(kinds, len(values)):
            end = queue.offsets([0])[0]
            # Where the worker stands now, with checksums that fit; and it has time to believe it.
            send(address, forgeries(pushing, queue.name, forge(end, [b"forged"]))[kind])
            other = queue.offsets([1])[0]
            values += put_numbers(putting, [2 * number + 1])
            got.await_values(values)
            values += put_numbers(putting, [2 * number])
            got.await_values(values)
            assert int(queue.offsets([1])[0].end) > int(other.end)
    assert b"forged" not in got.values
    assert sorted(got.values) == sorted(values)
    assert got.check_order() == 0


@pytest.mark.in_memory_first
def test_many_forgeries_beside_real_appends_change_nothing(
    make: Make, start: Start, pushing: hqueue.Client
) -> None:
    queue = make(1)
    worker = start()
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        wait_for(lambda: worker.owns(queue) == {0}, "the worker has the partition")
        values = put_numbers(queue, range(2))
        got.await_values(values)
        address = address_of(pushing, worker)
        for number in range(2, 60):
            end = queue.offsets()[0]
            frames = forgeries(pushing, queue.name, forge(end, [b"forged", b"twice"]))
            send(address, *frames.values())
            values += put_numbers(queue, [number])
        got.await_values(values)
    assert got.values == values


@pytest.mark.thorough("a truncation in between, 6 s")
@pytest.mark.in_memory_first
def test_a_real_batch_that_is_replayed_after_a_truncation_is_not_delivered_again(
    make: Make, start: Start, client: hqueue.Client, pushing: hqueue.Client
) -> None:
    queue = make(1)
    worker = start(poll_ms_max=50)
    got, fresh = Received(), Received()
    with queue.subscriber(Subscription("s"), got):
        before = put_numbers(queue, range(3))
        got.await_values(before)
        keys = keys_of(pushing)
        # What a stranger could have heard: the calls that reported these appends.
        heard = [
            notification(queue.name, real, keys.current.id, mac_of(keys.current, queue.name, real))
            for real in (
                Forged(row.partition, row.slot, row.header or b"", _encoded(row.cells))
                for row in queue._log.reader._port.open(0, 0, MESSAGE_ID_MAX, None).read(10)
            )
        ]
        assert len(heard) == 3
        address = address_of(pushing, worker)
        send(address, *heard)
    wait_for(lambda: worker.owns(queue) == set(), "the worker has given the partition up")
    client.truncate_queue(queue.name)
    with queue.subscriber(Subscription("fresh"), fresh):
        wait_for(lambda: worker.owns(queue) == {0}, "the worker has the partition")
        # It stands where the first batch lay, and looks there again and again.
        ends_s = time.monotonic() + 2
        while time.monotonic() < ends_s:
            send(address, *heard)
        after = put_numbers(queue, range(10, 13))
        send(address, *heard)
        fresh.await_values(after)
        send(address, *heard)
        last = put_numbers(queue, range(13, 15))
        fresh.await_values(last)
    assert got.values == before
    assert fresh.values == after + last


@pytest.mark.in_memory_first
def test_a_worker_whose_keys_were_renewed_believes_the_new_ones(
    make: Make, start: Start, pushing: hqueue.Client
) -> None:
    queue = make(1)
    start()
    got = Received()
    port = pushing.coordination.append_keys
    with queue.subscriber(Subscription("s"), got):
        values = put_numbers(queue, range(3))
        got.await_values(values)
        for number in range(3, 6):
            known = keys_of(pushing)
            renewed = port.replace(known, known.renewed(known.current.created_ms))
            assert renewed is not None
            assert renewed.previous == known.current
            values += put_numbers(queue, [number])
            got.await_values(values)
    assert got.values == values


@pytest.mark.in_memory_first
def test_without_keys_that_can_be_read_everything_is_delivered_from_hbase(
    make: Make, start: Start, pushing: hqueue.Client
) -> None:
    queue = make(1)
    coordination = pushing.coordination
    start()
    wait_for(lambda: coordination.append_keys.read() is not None, "the keys are made")
    path = f"{pushing.settings.zookeeper_root}/secrets/appends"
    coordination.store.records.write({path: Change(b'{"version": 99}', ANY)})
    got = Received()
    with queue.subscriber(Subscription("s"), got):
        values = put_numbers(queue, range(10))
        got.await_values(values)
    assert got.values == values


def _encoded(cells: Mapping[str, bytes]) -> dict[bytes, bytes]:
    return {topic.encode(): cell for topic, cell in cells.items()}
