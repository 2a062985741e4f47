"""A consumer's part in its group, over memory."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import hqueue
from hqueue import Message, PartitionKey
from hqueue.client import cluster_of
from hqueue.consumer_stream import ConsumerStream
from hqueue.errors import CommitFailedError, StoreUnavailableError
from hqueue.groups.callbacks import Callbacks, OnPartitions
from hqueue.groups.catalog import Catalog, Selection
from hqueue.groups.consumer_options import ConsumerSettings
from hqueue.groups.consumption import Consumption
from hqueue.groups.member import GroupMember
from hqueue.groups.paths import GroupPaths
from hqueue.groups.stream import Stream
from hqueue.metadata.ports import ANY
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import stepwise
from tests.support.backends import MemoryBackend
from tests.support.memory.metadata import MemoryServer
from tests.support.stopping import stopped_at
from tests.support.waiting import wait_for

PARTITIONS = 4


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def client(server: MemoryServer) -> Iterator[hqueue.Client]:
    with MemoryBackend(coordination=server).connect() as connected:
        connected.create_queue("q", partitions=PARTITIONS)
        yield connected


@pytest.fixture
def join(client: hqueue.Client) -> Iterator[Callable[..., Consumption]]:
    """Consumers of one group, each with a session of its own."""
    with contextlib.ExitStack() as stack:

        def join_one(callbacks: Callbacks | None = None) -> Consumption:
            made = Consumption(cluster_of(client), "g", ConsumerSettings())
            stack.callback(made.close, commit=False)
            made.subscribe(Selection(frozenset({"q"})), (), callbacks or Callbacks())
            return made

        yield join_one


def claimed(consumption: Consumption) -> int:
    """How many partitions somebody of its group has taken over."""
    offsets = consumption.membership.offsets()
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
    holder = first.membership.holder
    assert isinstance(holder, GroupMember)
    second = join()
    wait_for(lambda: holder.pending.revoked, "it must give some up")

    def shared() -> bool:
        for each in (first, second):
            each.refill(each.streams[0], 0)
        had, others = first.positions.keys(), second.positions.keys()
        return len(had) == len(others) == PARTITIONS // 2 and had.isdisjoint(others)

    wait_for(shared, "each has half", timeout_s=20)
    assert called == [("assigned", sorted(first.positions.keys()))]


def test_a_callback_that_fails_loses_nothing_of_what_comes_with_it(
    join: Callable[..., Consumption], server: MemoryServer
) -> None:
    failing, called = {"lost"}, []

    def callback(name: str) -> OnPartitions:
        def call(keys: list[PartitionKey]) -> None:
            called.append((name, keys))
            if name in failing:
                failing.discard(name)
                raise ValueError(name)

        return call

    first = join(Callbacks(*map(callback, ("assigned", "revoked", "lost"))))
    stream = first.streams[0]
    every = [PartitionKey("q", number) for number in range(PARTITIONS)]

    def has(count: int) -> bool:
        first.refill(stream, 0)
        return len(first.positions.keys()) == count

    wait_for(lambda: has(PARTITIONS), "it has all")
    holder = first.membership.holder
    assert isinstance(holder, GroupMember)
    del called[:]
    server.sessions[-1].expire()
    # It is out of the group for a moment: a plan may be without it.
    wait_for(lambda: holder.pending.assigned or holder.pending.revoked, "it claimed some again")
    with pytest.raises(ValueError, match="lost"):
        first.refill(stream, 0)
    assert called == [("lost", every)]
    wait_for(lambda: has(PARTITIONS), "it has all again")


def test_what_a_stream_decided_to_commit_is_done_before_a_later_claim_counts(
    client: hqueue.Client, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(PARTITIONS):
        client.queue("q").put([Message("t", b"v")], partition=partition)
    with hqueue.ParallelConsumer(
        "q", group="g", client=client, streams=2, auto_commit=False
    ) as consumer:
        first, second = consumer.streams
        wait_for(lambda: first.poll(100), "messages")
        committer, holder = consumer._consumption.committer, consumer._consumption.membership.holder
        assert isinstance(holder, GroupMember)

        def has_accepted() -> bool:
            second.poll()
            return accepted.is_set()

        with (
            ThreadPoolExecutor(2) as pool,
            stopped_at(holder, "accept", after=True) as (accepted, go_on_accepting),
            stopped_at(committer, "commit") as (decided, go_on),
        ):
            go_on_accepting.set()
            committing = pool.submit(first.commit)
            assert decided.wait(60)
            server.sessions[-1].expire()
            with stopped_at(committer, "flush") as (claimed, flush):
                serving = pool.submit(wait_for, has_accepted, "it has accepted them")
                assert claimed.wait(60)
                flush.set()
                assert not accepted.wait(0.2)
            go_on.set()
            with pytest.raises(CommitFailedError):
                committing.result(60)
            serving.result(60)
        assert consumer.committed() == {}


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_queue_that_was_made_again_with_more_partitions_is_consumed(
    client: hqueue.Client, reset: str
) -> None:
    with (
        hqueue.Consumer(
            "q", group="g", client=client, auto_offset_reset=reset, metadata_age_ms_max=100
        ) as consumer,
        hqueue.Consumer(client=client) as by_hand,
    ):
        by_hand.assign([("q", 0)])

        def has(count: int) -> bool:
            consumer.poll()
            return len(consumer.assignment()) == count

        wait_for(lambda: has(PARTITIONS), "it has all")
        client.disable_queue("q")
        client.delete_queue("q")
        client.create_queue("q", partitions=PARTITIONS + 1)
        wait_for(lambda: has(PARTITIONS + 1), "it has the new one")
        client.queue("q").put(Message("t", b"v"), partition=PARTITIONS)
        by_hand.assign([("q", PARTITIONS)])
        for each in (consumer, by_hand):
            wait_for(lambda each=each: each.poll(20), "the message")


def test_a_queue_of_a_pattern_is_consumed_also_if_that_could_not_be_announced_at_first(
    client: hqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()
    with hqueue.Consumer(group="g", client=client, metadata_age_ms_max=100) as consumer:
        consumer.subscribe(pattern="q.*")
        subscribe = GroupMember.subscribe

        @stepwise
        def fails_once(holder: GroupMember, streams: Mapping[str, int]) -> Work[Any, None]:
            if not failed.is_set():
                failed.set()
                raise StoreUnavailableError("no answer")
            yield from subscribe.__get__(holder, GroupMember).steps(streams)

        monkeypatch.setattr(GroupMember, "subscribe", fails_once)
        client.create_queue("q2", partitions=1)
        assert failed.wait(60)
        wait_for(lambda: consumer.poll() or ("q2", 0) in consumer.assignment(), "it has it")


def test_a_queue_of_a_pattern_that_is_found_while_it_joins_is_consumed(
    client: hqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = threading.Event()
    with (
        hqueue.Consumer(group="g", client=client, metadata_age_ms_max=100) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        membership = consumer._consumption.membership
        on_catalog = membership._on_catalog

        def noted(catalog: Catalog) -> Work[Any, bool]:
            taken = yield from on_catalog(catalog)
            found.set()
            return taken

        monkeypatch.setattr(membership, "_on_catalog", noted)
        with stopped_at(membership, "_join") as (joins, go_on):
            subscribed = pool.submit(consumer.subscribe, pattern="q.*")
            assert joins.wait(60)
            client.create_queue("q2", partitions=1)
            assert found.wait(60)
            go_on.set()
            subscribed.result(60)
        wait_for(lambda: consumer.poll() or ("q2", 0) in consumer.assignment(), "it has it")


@pytest.mark.parametrize(
    "take",
    [
        lambda stream: stream.poll(20),
        lambda stream: next(stream.messages(idle_ms_max=20), None),
        lambda stream: next(stream.arrow_batches(idle_ms_max=20), None),
    ],
    ids=["poll", "messages", "arrow_batches"],
)
def test_what_a_stream_works_on_is_committed_by_no_other(
    client: hqueue.Client, take: Callable[[ConsumerStream], object]
) -> None:
    key = PartitionKey("q", 0)
    with hqueue.ParallelConsumer(
        "q", group="g", client=client, streams=2, auto_commit_interval_ms=1
    ) as consumer:
        streams = consumer.streams

        def is_shared() -> bool:
            for stream in streams:
                stream.poll()
            return all(len(stream.assignment()) == PARTITIONS / 2 for stream in streams)

        def is_committed() -> bool:
            consumer._consumption.committer.flush()
            return consumer.committed([key]).get(key, message) > message

        wait_for(is_shared, "both have partitions")
        first, second = sorted(streams, key=lambda stream: key not in stream.assignment())
        message = client.queue("q").put(Message("t", b"v"), partition=key.partition)
        wait_for(lambda: take(first), "the message")
        consumer.seek_to_beginning(*first.assignment() - {key})
        for _ in range(3):
            second.poll(20)
            assert not is_committed()
        consumer.commit()
        assert not is_committed()
        first.commit()
        assert is_committed()


def test_a_consumer_of_one_stream_commits_nothing_that_its_thread_works_on(
    client: hqueue.Client,
) -> None:
    key = PartitionKey("q", 0)
    client.queue("q").put(Message("t", b"v"), partition=key.partition)
    with hqueue.ParallelConsumer("q", group="g", client=client, streams=1) as consumer:
        (stream,) = consumer.streams
        (message,) = wait_for(lambda: stream.poll(100), "the message")
        consumer.commit()
        assert consumer.committed([key]).get(key, message.id) <= message.id
        stream.poll()
        consumer.commit()
        assert consumer.committed([key])[key] > message.id


def test_what_streams_asked_for_more_after_is_committed_at_the_end(client: hqueue.Client) -> None:
    key = PartitionKey("q", 0)
    message = client.queue("q").put(Message("t", b"v"), partition=key.partition)
    with hqueue.ParallelConsumer("q", group="g", client=client, streams=2) as consumer:
        for stream in consumer.streams:
            for _ in stream.messages(idle_ms_max=500):
                consumer.request_stop()
    with hqueue.Consumer(group="g", client=client) as other:
        assert other.committed([key])[key] > message


def test_a_claim_that_somebody_removes_is_lost_to_the_consumer_and_comes_again(
    join: Callable[..., Consumption], client: hqueue.Client
) -> None:
    called: list[tuple[str, PartitionKey]] = []

    def note(what: str) -> Callable[[list[PartitionKey]], None]:
        return lambda keys: called.extend((what, key) for key in keys)

    it = join(Callbacks(note("assigned"), note("revoked"), note("lost")))

    def has_all() -> bool:
        it.refill(it.streams[0], 0)
        return len(it.positions.keys()) == PARTITIONS

    wait_for(has_all, "it has all")
    called.clear()
    removed = PartitionKey("q", 1)
    path = GroupPaths("/hqueue", "g").owner(removed)
    client.coordination.store.records.delete({path: ANY})
    wait_for(lambda: (has_all(), ("lost", removed) in called)[1], "it hears of it")
    wait_for(has_all, "it has all again")
    assert called == [("lost", removed), ("assigned", removed)]


def test_a_consumer_whose_offsets_somebody_removes_skips_nothing_and_commits_again(
    client: hqueue.Client,
) -> None:
    store = client.coordination.store.records
    paths = GroupPaths("/hqueue", "removed")
    keys = [PartitionKey("q", number) for number in range(PARTITIONS)]
    queue = client.queue("q")
    options = {"auto_commit_interval_ms": 1, "auto_offset_reset": "latest"}
    with hqueue.Consumer("q", group="removed", client=client, **options) as consumer:  # type: ignore[arg-type]
        wait_for(
            lambda: (consumer.poll(0), consumer.committed(keys))[1].keys() == {*keys},
            "it has its place in all partitions",
        )
        got: list[bytes] = []

        def comes(value: bytes) -> None:
            def has_come() -> bool:
                got.extend(each.value for each in consumer.poll(10))
                return value in got

            wait_for(has_come, f"{value!r} is handed out")

        queue.put(hqueue.Message("t", b"1"), partition=0)
        comes(b"1")
        store.delete({paths.offset(keys[0]): ANY})
        queue.put(hqueue.Message("t", b"2"), partition=0)
        queue.put(hqueue.Message("t", b"3"), partition=0)
        comes(b"3")
        end = queue.offsets()[0].end

        def is_committed() -> bool:
            got.extend(each.value for each in consumer.poll(10))
            at = consumer.committed([keys[0]]).get(keys[0])
            return at is not None and at >= end

        wait_for(is_committed, "its commits count again")
        assert set(got) == {b"1", b"2", b"3"}


@pytest.mark.parametrize("way", ["close", "unsubscribe"])
def test_a_callback_that_closes_its_consumer_is_refused_whatever_called_it(
    client: hqueue.Client, way: str
) -> None:
    errors: list[str] = []
    consumer = hqueue.Consumer(group="closing", client=client)

    def close(_: object) -> None:
        try:
            consumer.close()
        except hqueue.InvalidInputError as exc:
            errors.append(str(exc))

    consumer.subscribe("q", on_revoked=close)
    wait_for(lambda: (consumer.poll(0), consumer.assignment())[1], "it has partitions")
    getattr(consumer, way)()
    consumer.close()
    assert len(errors) == 1
    assert "can't close its consumer" in errors[0]


@pytest.mark.parametrize(
    "take",
    [
        lambda stream: stream.poll(0),
        lambda stream: next(stream.messages(idle_ms_max=0)),
        lambda stream: next(stream.arrow_batches(idle_ms_max=0)),
    ],
    ids=["poll", "messages", "arrow_batches"],
)
def test_a_stream_that_looks_while_its_consumer_closes_finds_it_closed(
    client: hqueue.Client, take: Callable[[ConsumerStream], object]
) -> None:
    consumption = Consumption(cluster_of(client), "g", ConsumerSettings(), streams=1)
    consumption.subscribe(Selection(frozenset({"q"})), (), Callbacks())
    waiting = ConsumerStream(consumption, consumption.streams[0], lambda: None)
    raised: list[BaseException] = []

    class ClosedFirst(Stream):
        def close(self) -> None:
            try:
                take(waiting)
            except BaseException as exc:
                raised.append(exc)
            super().close()

    consumption.streams.insert(0, ClosedFirst(consumption.positions, "g", 1, consumption.clock))
    consumption.close(commit=False)
    assert [type(exc) for exc in raised] == [hqueue.ClosedError]


Row = tuple[bytes, int]


def _one_record_batch(consumer: hqueue.Consumer) -> list[Row]:
    for columns in consumer.arrow_batches(idle_ms_max=200):
        return [(row["value"], row["id"]) for row in columns.to_pylist()]
    return []


def _one_message(consumer: hqueue.Consumer) -> list[Row]:
    for message in consumer.messages(idle_ms_max=200):
        return [(message.value, int(message.id))]
    return []


def _some_polled(consumer: hqueue.Consumer) -> list[Row]:
    return [(each.value, int(each.id)) for each in consumer.poll(200, messages_max=3)]


@pytest.mark.parametrize("options", [{}, {"bytes_max": 64}], ids=str)
@pytest.mark.parametrize(
    "takes",
    [
        [_one_record_batch],
        [_one_message, _one_record_batch],
        [_one_message, _some_polled, _one_message, _one_record_batch],
    ],
)
def test_what_an_iteration_that_was_left_did_not_give_comes_with_the_next_one(
    client: hqueue.Client,
    options: dict[str, Any],
    takes: list[Callable[[hqueue.Consumer], list[Row]]],
) -> None:
    queue = client.queue("q")
    for number in range(20):
        queue.put([Message("t", b"%d" % (2 * number + each)) for each in range(2)], partition=0)
    came: list[Row] = []
    with hqueue.Consumer(client=client, group="left", **options) as consumer:
        consumer.assign([("q", 0)])
        for take in itertools.cycle(takes):
            rows = take(consumer)
            if not rows:
                break
            came += rows
    assert [value for value, _ in came] == [b"%d" % number for number in range(40)]
    assert came == sorted(came, key=lambda row: row[1])
