"""A group's offset that can't be read stands for itself: it is named, the other partitions go on,
and it is repaired by a reset or a seek.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hqueue
from hqueue import Consumer, Message, MessageID, PartitionKey
from hqueue.errors import CommitFailedError, Outcome, StoreUnavailableError, UnsupportedFormatError
from hqueue.groups.offsets import GroupOffsets, Position
from hqueue.groups.paths import GroupPaths
from hqueue.metadata.ports import ANY, Change
from tests.support.backends import MemoryBackend
from tests.support.garbage import GARBAGE, garbled
from tests.support.interposed import Interposed
from tests.support.memory.metadata import MemoryServer, MemorySession

PARTITIONS, MESSAGES = 4, 5
PATHS = GroupPaths("/hqueue", "g")
BAD = PartitionKey("q", 2)
PATH = PATHS.offset(BAD)
KEYS = {PartitionKey("q", number) for number in range(PARTITIONS)}

IN_EACH_WAY = pytest.mark.parametrize("kind", GARBAGE)


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as connected:
        connected.create_queue("q", partitions=PARTITIONS)
        with connected.queue("q") as queue:
            for partition in range(PARTITIONS):
                queue.put([Message("t", b"%d" % n) for n in range(MESSAGES)], partition=partition)
        yield connected


def plant(client: hqueue.Client, kind: str) -> bytes:
    """Let the group have consumed one message of each partition, and make one offset unreadable."""
    with Consumer("q", group="g", client=client) as consumer:
        taken = take(consumer, PARTITIONS * MESSAGES)
        first = {key: min(m.id for m in taken if m.partition == key.partition) for key in KEYS}
        consumer.commit({key: at.next() for key, at in first.items()})
        records = client.coordination.store.records
        value = garbled(kind, records.read([PATH])[PATH].value)
        consumer.close(commit=False)
    records.write({PATH: Change(value, ANY)})
    return value


def take(consumer: Consumer, count: int, errors: list[Exception] | None = None) -> list:
    """So many messages, and the errors that came meanwhile."""
    taken: list = []
    while len(taken) < count:
        try:
            got = consumer.poll(20_000)
        except UnsupportedFormatError as exc:
            if errors is None:
                raise
            errors.append(exc)
            continue
        assert got, f"nothing more after {len(taken)} of {count}"
        taken += got
    return taken


@IN_EACH_WAY
def test_a_consumer_says_once_which_offset_it_can_not_read_and_the_other_partitions_go_on(
    client: hqueue.Client, kind: str
) -> None:
    value = plant(client, kind)
    errors: list[Exception] = []
    with Consumer("q", group="g", client=client) as consumer:
        taken = take(consumer, (PARTITIONS - 1) * (MESSAGES - 1), errors)
        assert {m.partition for m in taken} == {0, 1, 3}
        assert consumer.poll(50) == []
        (error,) = errors
        assert isinstance(error, UnsupportedFormatError)
        assert (error.queue, error.partition, error.path) == (*BAD, PATH)
        assert "reset the group" in str(error)
        assert len(str(error)) < 1_000
        consumer.commit()
        with pytest.raises(UnsupportedFormatError) as caught:
            consumer.committed()
        assert (caught.value.partition, len(caught.value.committed)) == (2, 3)  # type: ignore[arg-type]
        assert consumer.committed(KEYS - {BAD}).keys() == KEYS - {BAD}
        assert consumer.lag().keys() == KEYS - {BAD}
        for ask in (consumer.position, consumer.lag):
            with pytest.raises(UnsupportedFormatError):
                ask(BAD)
    found = client.coordination.store.records.read([PATH])
    assert found[PATH].value == value, "what nobody can read, nobody writes over by itself"


def test_a_consumer_that_seeks_goes_on_and_its_commit_repairs_the_offset(
    client: hqueue.Client,
) -> None:
    plant(client, "no JSON")
    errors: list[Exception] = []
    with Consumer("q", group="g", client=client) as consumer:
        taken = take(consumer, (PARTITIONS - 1) * (MESSAGES - 1), errors)
        consumer.seek_to_beginning(BAD)
        taken = take(consumer, MESSAGES, errors)
        assert {m.partition for m in taken} == {2}
        consumer.commit()
        assert consumer.committed().keys() == KEYS
    assert client.describe_group("g").partitions[2].unreadable is None


@IN_EACH_WAY
def test_a_group_is_described_with_it_and_a_reset_of_that_partition_repairs_it(
    client: hqueue.Client, kind: str
) -> None:
    plant(client, kind)
    described = client.describe_group("g").partitions
    assert [each.unreadable is not None for each in described] == [False, False, True, False]
    assert [each.lag and each.lag.messages for each in described] == [4, 4, None, 4]
    assert described[2].committed is None
    moved = client.reset_group("g", "q", "earliest", partitions=[2])
    assert moved.keys() == {2}
    described = client.describe_group("g").partitions
    assert [each.unreadable for each in described] == [None] * PARTITIONS
    assert [each.lag and each.lag.messages for each in described] == [4, 4, 5, 4]
    with Consumer("q", group="g", client=client) as consumer:
        assert len(take(consumer, 17)) == 17


@pytest.fixture
def session(metadata_server: MemoryServer) -> MemorySession:
    return metadata_server.open()


@pytest.fixture
def offsets(session: MemorySession) -> GroupOffsets:
    return GroupOffsets(session, PATHS)


def test_a_commit_moves_the_others_and_says_what_became_of_each(
    offsets: GroupOffsets, metadata_server: MemoryServer
) -> None:
    taken = offsets.take_over("a", KEYS)
    store = metadata_server.open()
    for number in (5, 6):  # It goes on like that.
        store.records.write({PATH: Change(b"garbage", ANY)})
        moves = {key: (taken[key], Position(MessageID(number))) for key in KEYS}
        moved = offsets.commit("a", moves)
        assert moved.keys() == KEYS - {BAD}
        taken |= moved
        assert {key: each.position.next for key, each in offsets.read(KEYS - {BAD}).items()} == (
            dict.fromkeys(KEYS - {BAD}, MessageID(number))
        )


def test_a_commit_that_gets_no_answer_says_what_became_of_each(
    offsets: GroupOffsets, session: MemorySession
) -> None:
    first, second, third, fourth = sorted(KEYS)
    taken = offsets.take_over("a", KEYS)
    records = session.records
    records.write({PATHS.offset(second): Change(b"garbage", ANY)})

    def lose(changes: dict[str, Change]) -> object:
        from hqueue.metadata.outcomes import partly_done  # noqa: PLC0415

        answers: dict[str, object] = dict(
            records.write(
                {path: changes[path] for path in (PATHS.offset(first), PATHS.offset(second))}
            )
        )
        answers[PATHS.offset(third)] = StoreUnavailableError("?", outcome=Outcome.UNKNOWN)
        answers[PATHS.offset(fourth)] = StoreUnavailableError(
            "not sent", outcome=Outcome.NOT_APPLIED
        )
        raise partly_done(StoreUnavailableError("silent", outcome=Outcome.NOT_APPLIED), answers)

    session.records = Interposed(records, write=lose, read=lambda keys: _away())
    with pytest.raises(StoreUnavailableError) as caught:
        offsets.commit("a", {key: (taken[key], Position(MessageID(9))) for key in KEYS})
    session.records = records
    error = caught.value
    assert (error.outcome, error.committed, error.refused, error.unknown) == (
        Outcome.UNKNOWN,
        [first],
        [second],
        [third],
    )
    assert offsets.read([first])[first].position.next == MessageID(9)


def _away() -> object:
    raise StoreUnavailableError("away", outcome=Outcome.NOT_APPLIED)


def test_a_refused_commit_names_those_that_are_committed_all_the_same(
    client: hqueue.Client,
) -> None:
    with Consumer("q", group="g", client=client) as consumer:
        take(consumer, PARTITIONS * MESSAGES)
        records = client.coordination.store.records
        records.write({PATH: Change(b"garbage", ANY)})
        with pytest.raises(CommitFailedError) as caught:
            consumer.commit()
        assert caught.value.partitions == [BAD]
        assert caught.value.unknown == []
        assert caught.value.committed == sorted(KEYS - {BAD})
        assert consumer.committed(KEYS - {BAD}).keys() == KEYS - {BAD}
        consumer.close(commit=False)
