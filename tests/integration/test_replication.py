"""A queue that HBase replicates to another cluster: the runbook of ``docs/second-cluster.md``."""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
import threading
from collections.abc import Iterator

import pytest

import hqueue
from hqueue import Consumer, CorruptLogError, HQueueError, Message, local
from hqueue.settings.addresses import Address
from tests.faults.regions import Regions
from tests.support.backends import MemoryBackend
from tests.support.consuming import put_numbered, settle, take, values
from tests.support.replication import Replication
from tests.support.waiting import wait_for

QUEUE = "events"
PARTITIONS = 2
WAIT_S = 240.0


def counts(client: hqueue.Client, queue: str = QUEUE) -> list[int]:
    """How many messages each partition ever had, as ``hqueue describe`` shows them."""
    return [each.count for each in client.queue(queue).offsets()]


def check_whole(client: hqueue.Client, queue: str = QUEUE) -> None:
    for checked in client.queue(queue).verify():
        assert not checked.findings


def scanned(client: hqueue.Client, queue: str = QUEUE) -> list[int]:
    with client.queue(queue).scan() as scanner:
        return sorted(int(message.value) for message in scanner)


@contextlib.contextmanager
def served(profile: str = "standalone") -> Iterator[local.LocalServer]:
    with tempfile.TemporaryDirectory(prefix="hqueue-replicated-") as home:
        server = local.start(profile, gateways=False, home=home)
        try:
            yield server
        finally:
            server.stop()


@pytest.mark.servers
@pytest.mark.thorough("starts two servers of its own")
def test_a_reader_at_the_standby_sees_a_prefix_of_the_log_and_goes_on_there() -> None:
    with contextlib.ExitStack() as stack:
        main, standby = stack.enter_context(served()), stack.enter_context(served())
        here = stack.enter_context(hqueue.connect(main.settings()))
        there = stack.enter_context(hqueue.connect(standby.settings()))
        for client in (here, there):
            client.create_queue(QUEUE, partitions=PARTITIONS)
        replication = stack.enter_context(contextlib.closing(Replication(main, standby)))
        replication.set_scope(QUEUE)
        replication.add_peer(QUEUE, serial=True)

        # While it runs: a follower there gets all messages, each partition in order.
        queue = here.queue(QUEUE)
        followed: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        with there.queue(QUEUE).scan(follow=True) as scanner:

            def follow() -> None:
                for message in itertools.islice(scanner, 400):
                    followed[message.partition].append(int(message.value))

            following = threading.Thread(target=follow)
            following.start()
            put_numbered(queue, 400)
            following.join(WAIT_S)
        assert followed == {p: list(range(p, 400, PARTITIONS)) for p in range(PARTITIONS)}
        with Consumer([QUEUE], group="g", client=here) as consumer:
            take(300, consumer)
            consumer.commit()
        offsets = {each.partition: each.committed for each in here.describe_group("g").partitions}

        # The replication falls behind, and the cluster dies: the standby has a prefix.
        replication.disable_peer()
        put_numbered(queue, 20, first=400)
        assert counts(here) == [210, 210]
        assert counts(there) == [200, 200]
        main.kill("master")
        assert scanned(there) == list(range(400))
        check_whole(there)

        # The standby takes over: groups get the offsets that were noted, and writers append.
        with Consumer([QUEUE], group="g", client=there, auto_offset_reset="latest") as first:
            settle(first, shares=[PARTITIONS])  # It creates the group.
        for partition, offset in offsets.items():
            assert offset is not None
            there.reset_group("g", QUEUE, offset, partitions=[partition])
        put_numbered(there.queue(QUEUE), 10, first=1_000)
        with Consumer([QUEUE], group="g", client=there) as consumer:
            rest = values(take(110, consumer))
        assert rest[-10:] == list(range(1_000, 1_010))
        assert len(set(rest)) == 110
        check_whole(there)


@pytest.mark.servers
@pytest.mark.cluster
@pytest.mark.thorough("starts a cluster and a server of its own, and kills the cluster")
def test_only_serial_replication_leaves_no_gap_when_regions_moved_before_the_cluster_died() -> None:
    with contextlib.ExitStack() as stack:
        main, standby = stack.enter_context(served("cluster")), stack.enter_context(served())
        here = stack.enter_context(hqueue.connect(main.settings()))
        there = stack.enter_context(hqueue.connect(standby.settings()))
        replication = stack.enter_context(contextlib.closing(Replication(main, standby)))
        regions = Regions(main.settings())
        queues = ("serial", "plain")
        for name in queues:
            for client in (here, there):
                client.create_queue(name, partitions=1)
            replication.set_scope(name)
            replication.add_peer(name, serial=name == "serial", peer=name)
            put_numbered(here.queue(name), 20)
        for name in queues:
            wait_for(
                lambda name=name: counts(there, name) == [20],
                "the first part arrives",
                timeout_s=WAIT_S,
            )

        # One server writes the second part, and others the third; the first of them stands still.
        def server_of(name: str) -> Address:
            return regions.all(name)[0].address

        def move(name: str) -> None:
            replication.move(regions.all(name)[0].name)

        while server_of("plain") != (first := server_of("serial")):
            move("plain")
        for name in queues:
            replication.disable_peer(name)
            put_numbered(here.queue(name), 20, first=20)
            move(name)
            third = put_numbered(here.queue(name), 20, first=40)
            assert server_of(name) != first
        process = next(
            each.name
            for each in main.processes
            if each.name.startswith("regionserver") and each.ports[each.name] == first.port
        )
        main.pause(process)

        def enable(name: str) -> None:
            with contextlib.suppress(HQueueError):  # The server that stands still doesn't answer.
                replication.enable_peer(name)

        enabling = [threading.Thread(target=enable, args=(name,)) for name in queues]
        for each in enabling:
            each.start()
        wait_for(lambda: counts(there, "plain") == [60], "the third part arrives", timeout_s=WAIT_S)
        main.stop(orderly_s=0)
        for each in enabling:
            each.join(WAIT_S)
            assert not each.is_alive()

        assert scanned(there, "serial") == list(range(20))
        check_whole(there, "serial")
        got: list[int] = []
        with (
            there.queue("plain").scan() as scanner,
            pytest.raises(CorruptLogError, match="batches are missing"),
        ):
            got += (int(message.value) for message in scanner)
        assert got == list(range(20))
        found = [each.problem for each in list(there.queue("plain").verify())[-1].findings]
        assert "batches are missing" in found[0], found
        with there.queue("plain").scan(start=third[0]) as scanner:
            assert [int(message.value) for message in scanner] == list(range(40, 60))


def test_rows_that_arrive_in_any_order_are_read_in_order_and_none_is_skipped() -> None:
    backend = MemoryBackend()
    with backend.connect() as client:
        source = client.create_queue("source", partitions=1)
        for number in range(30):
            source.put(Message("t", b"%d" % number), partition=0)
        rows = list(backend.raw.rows("source").items())
        for seed in range(5):
            name = f"standby-{seed}"
            standby = client.create_queue(name, partitions=1)
            first, *others = rows
            random.Random(seed).shuffle(others)
            got: list[int] = []
            with standby.scan(follow=True) as scanner:
                following = threading.Thread(
                    target=lambda scanner=scanner, got=got: got.extend(
                        int(message.value) for message in itertools.islice(scanner, 30)
                    ),
                    daemon=True,
                )
                following.start()
                for key, cells in (first, *others):
                    backend.raw.put(name, key, cells)
                following.join(60)
            assert got == list(range(30))


def test_a_row_that_does_not_arrive_holds_readers_up_and_is_found() -> None:
    backend = MemoryBackend()
    with backend.connect() as client:
        source = client.create_queue("source", partitions=1)
        for number in range(5):
            source.put(Message("t", b"%d" % number), partition=0)
        rows = list(backend.raw.rows("source").items())
        standby = client.create_queue("standby", partitions=1)
        for key, cells in rows[:2] + rows[3:]:
            backend.raw.put("standby", key, cells)
        got: list[int] = []
        with standby.scan() as scanner, pytest.raises(CorruptLogError, match="batches are missing"):
            got += [int(message.value) for message in scanner]
        checked = list(standby.verify())[-1]
        assert "batches are missing" in checked.findings[0].problem
        with Consumer(["standby"], group="g", client=client) as consumer:
            taken = values(take(2, consumer))
            backend.raw.put("standby", *rows[2])

            def whole() -> bool:
                with contextlib.suppress(CorruptLogError):
                    taken.extend(values(consumer.poll(20)))
                return len(taken) >= 5

            wait_for(whole, "the consumer goes on when the row has arrived")
        assert sorted(taken) == [0, 1, 2, 3, 4]
