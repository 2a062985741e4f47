"""Which hubs are available, and which of them owns a topic: over every coordination service."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from hqueue import InvalidInputError, RequestRefusedError, StoreUnavailableError
from hqueue.metadata import Address, MetadataStore
from hqueue.metadata.fields import FieldRecords
from hqueue.metadata.managers import (
    AvailableHub,
    HubInfo,
    MemoryFields,
    TopicMetadata,
    Verdict,
    Versioned,
    open_topic_metadata,
)
from hqueue.metadata.ports import ANY
from tests.conformance.conftest import OVER_FEW_METADATA_STORES, MetadataBackend
from tests.support.waiting import wait_for

pytestmark = OVER_FEW_METADATA_STORES

QUEUE = "news"
WAIT_S = 30.0

Open = Callable[[MetadataStore], TopicMetadata]

_numbers = itertools.count(1)


def hub(number: int) -> HubInfo:
    """A hub at an address of its own, as it starts."""
    return HubInfo(Address("127.0.0.1", 4_000 + number), f"start-{next(_numbers)}")


def answer(future: Future[Verdict]) -> Verdict:
    return future.result(WAIT_S)


@pytest.fixture(params=["where the hubs are", "elsewhere"])
def open_metadata(
    request: pytest.FixtureRequest, metadata_backend: MetadataBackend
) -> Iterator[Open]:
    """Opens metadata whose owners are ephemeral there, or records elsewhere."""
    opened: list[TopicMetadata] = []
    rows: FieldRecords = MemoryFields()
    store = "zookeeper" if request.param == "where the hubs are" else "hbase"

    def open_by(session: MetadataStore) -> TopicMetadata:
        opened.append(
            open_topic_metadata(
                QUEUE,
                session=session,
                root=metadata_backend.root,
                first=store,
                rows=lambda: rows,
                wait_s=WAIT_S,
            )
        )
        return opened[-1]

    yield open_by
    for each in opened:
        each.close()


@pytest.fixture
def hubs_of(
    metadata_backend: MetadataBackend,
) -> Open:
    """Opens what reports hubs, and need not know where topics' metadata is."""

    def open_by(session: MetadataStore) -> TopicMetadata:
        return open_topic_metadata(
            QUEUE,
            session=session,
            root=metadata_backend.root,
            first="hbase",
            rows=MemoryFields,
            wait_s=WAIT_S,
        )

    return open_by


def test_a_hub_is_available_until_it_is_closed(
    open_store: Callable[[], MetadataStore], hubs_of: Open
) -> None:
    ours, theirs = hubs_of(open_store()).hubs, hubs_of(open_store()).hubs
    first, second = hub(1), HubInfo(Address("::1", 4_000), "x y")
    assert not theirs.is_available(first)
    registered = ours.register(first, 3)
    ours.register(second)
    assert theirs.list() == {
        first.address: AvailableHub(first, 3),
        second.address: AvailableHub(second, 0),
    }
    registered.update(7)
    assert theirs.list()[first.address].load == 7
    assert not theirs.drop(first.address), "it is available"
    with pytest.raises(InvalidInputError):
        registered.update(-1)
    for address in (Address("a b", 1), Address("host", 0)):
        with pytest.raises(InvalidInputError):
            ours.register(HubInfo(address, "start"))
    registered.close()
    assert not theirs.is_available(first)
    assert theirs.is_available(second)
    assert not theirs.is_available(HubInfo(second.address, "another start"))
    assert theirs.drop(first.address)
    assert list(theirs.list()) == [second.address]


def test_a_hub_is_registered_again_with_each_session(
    open_store: Callable[[], MetadataStore], hubs_of: Open, metadata_backend: MetadataBackend
) -> None:
    session = open_store()
    ours, theirs = hubs_of(session).hubs, hubs_of(open_store()).hubs
    info = hub(1)
    registered = ours.register(info, 1)
    registered.update(5)
    metadata_backend.expire(session)
    wait_for(lambda: theirs.list() == {info.address: AvailableHub(info, 5)}, WAIT_S)
    assert registered.failure is None


def test_hubs_are_watched(open_store: Callable[[], MetadataStore], hubs_of: Open) -> None:
    ours, theirs = hubs_of(open_store()).hubs, hubs_of(open_store()).hubs
    seen: list[Mapping[Address, AvailableHub]] = []
    watch = theirs.watch(seen.append)
    info = hub(1)
    wait_for(lambda: seen[-1:] == [{}], WAIT_S)
    registered = ours.register(info)
    wait_for(lambda: seen[-1] == {info.address: AvailableHub(info, 0)}, WAIT_S)
    registered.update(2)
    wait_for(lambda: seen[-1] == {info.address: AvailableHub(info, 2)}, WAIT_S)
    registered.close()
    wait_for(lambda: seen[-1] == {}, WAIT_S)
    watch.close()


def test_a_hub_that_starts_again_takes_the_place_of_the_one_before(
    open_store: Callable[[], MetadataStore], hubs_of: Open
) -> None:
    before, after = hub(1), hub(1)
    hubs_of(open_store()).hubs.register(before)
    theirs = hubs_of(open_store()).hubs
    theirs.register(after)
    assert theirs.is_available(after)
    assert not theirs.is_available(before)


@pytest.mark.thorough("waits for the end of a session that does not end, 1 to 4 s")
def test_a_record_of_a_later_release_is_left_out_and_left_alone(
    open_store: Callable[[], MetadataStore], hubs_of: Open, metadata_backend: MetadataBackend
) -> None:
    session = open_store()
    hubs, info = hubs_of(session).hubs, hub(1)
    later = f"{metadata_backend.root}/regions/{QUEUE}/hosts/{info.address}/alive"
    session.ephemerals.claim({later: b'{"version": 9}'})
    assert hubs.list() == {}
    assert not hubs.is_available(info)
    other = hubs_of(open_store()).hubs
    with pytest.raises(RequestRefusedError) as refused:
        other.register(info)
    assert refused.value.path == later


def test_one_hub_owns_a_topic_and_the_others_learn_which(
    open_store: Callable[[], MetadataStore], open_metadata: Open
) -> None:
    ours, theirs = open_metadata(open_store()), open_metadata(open_store())
    first, second = hub(1), hub(2)
    ours.hubs.register(first)
    theirs.hubs.register(second)
    won = answer(ours.election.acquire("t", first))
    assert (won.owner, won.won) == (first, True)
    lost = answer(theirs.election.acquire("t", second))
    assert (lost.owner, lost.won) == (first, False)
    again = answer(ours.election.acquire("t", first))
    assert (again.owner, again.won) == (first, True)
    assert again.version != won.version
    assert not theirs.election.release("t", lost._replace(owner=second)).result(WAIT_S)
    assert ours.election.release("t", again).result(WAIT_S)
    assert not ours.election.release("t", again).result(WAIT_S)
    assert answer(theirs.election.acquire("t", second)).won


def test_a_hub_that_is_not_available_acquires_nothing(
    open_store: Callable[[], MetadataStore], open_metadata: Open
) -> None:
    metadata = open_metadata(open_store())
    with pytest.raises(StoreUnavailableError):
        answer(metadata.election.acquire("t", hub(1)))
    assert metadata.ownership.read_owner_info("t").result(WAIT_S) is None
    available = hub(2)
    metadata.hubs.register(available)
    with pytest.raises(InvalidInputError):
        answer(metadata.election.acquire("", available))


def test_a_topic_is_taken_over_when_its_hubs_session_ends(
    open_store: Callable[[], MetadataStore], open_metadata: Open
) -> None:
    session = open_store()
    ours, theirs = open_metadata(session), open_metadata(open_store())
    first, second = hub(1), hub(2)
    ours.hubs.register(first)
    theirs.hubs.register(second)
    won = answer(ours.election.acquire("t", first))
    assert not answer(theirs.election.acquire("t", second)).won
    session.close()
    taken = answer(theirs.election.acquire("t", second))
    assert (taken.owner, taken.won) == (second, True)
    known = theirs.ownership.read_owner_info("t").result(WAIT_S)
    assert known == Versioned(second, taken.version)
    if taken.version != won.version:
        third = open_metadata(open_store())
        assert not third.election.release("t", won).result(WAIT_S)


def test_of_hubs_at_once_one_wins_each_topic(
    open_store: Callable[[], MetadataStore], open_metadata: Open
) -> None:
    topics = [f"t{number}" for number in range(20)]
    hubs = [hub(number) for number in range(3)]
    opened = [open_metadata(open_store()) for _ in hubs]
    for metadata, info in zip(opened, hubs, strict=True):
        metadata.hubs.register(info)
    begin = threading.Barrier(len(hubs))

    def acquire_all(number: int) -> list[Verdict]:
        begin.wait(WAIT_S)
        asked = [opened[number].election.acquire(topic, hubs[number]) for topic in topics]
        return [answer(future) for future in asked]

    with ThreadPoolExecutor(len(hubs)) as pool:
        verdicts = [*pool.map(acquire_all, range(len(hubs)))]
    for of_topic in zip(*verdicts, strict=True):
        assert sum(verdict.won for verdict in of_topic) == 1
        assert len({verdict.owner for verdict in of_topic}) == 1


def test_an_incarnation_that_is_gone_owns_nothing_elsewhere(
    open_store: Callable[[], MetadataStore], metadata_backend: MetadataBackend
) -> None:
    rows = MemoryFields()
    session = open_store()
    metadata = open_topic_metadata(
        QUEUE,
        session=session,
        root=metadata_backend.root,
        first="hbase",
        rows=lambda: rows,
        wait_s=WAIT_S,
    )
    before, after, other = hub(1), hub(1), hub(2)
    registered = metadata.hubs.register(before)
    won = answer(metadata.election.acquire("t", before))
    registered.close()
    metadata.hubs.register(after)
    metadata.hubs.register(other)
    taken = answer(metadata.election.acquire("t", other))
    assert (taken.won, taken.version != won.version) == (True, True)
    assert answer(metadata.election.acquire("t", after)).owner == other
    assert not metadata.election.release("t", won).result(WAIT_S)
    metadata.ownership.delete_owner_info("t", ANY).result(WAIT_S)
    assert answer(metadata.election.acquire("t", after)).won
    metadata.close()
