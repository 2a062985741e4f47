"""Topics' metadata is moved to another store while hubs write it; nothing is lost."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

import hqueue
import hqueue.aio
from hqueue import MessageID, Outcome
from hqueue.errors import (
    BadVersionError,
    InvalidInputError,
    MetadataReadOnlyError,
    NoSubscriptionStateError,
    SettingsError,
    StoreUnavailableError,
)
from hqueue.metadata import Address
from hqueue.metadata.managers import (
    HubInfo,
    LogRange,
    MetadataLocation,
    MetadataMigration,
    Phase,
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
    TopicMetadata,
    TopicPersistenceInfo,
)
from hqueue.metadata.ports import ANY, NEW, Version
from tests.integration.running import Program
from tests.support.backends import Backend
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_memory_first

WAIT_S = 60.0
TOPICS = [f"t/{number}" for number in range(4)]
INFO = TopicPersistenceInfo((LogRange(0, MessageID.parse("1700000000000-0")),))


class Died(BaseException):
    """The process that moves dies here."""


class Writers:
    """One hub's threads: each moves a subscription of its own on, as fast as it can."""

    def __init__(self, metadata: TopicMetadata, name: str) -> None:
        self.name = name
        self.done: dict[str, int] = {}
        """What was acknowledged last, by topic."""
        self.versions: dict[str, dict[Version, int]] = defaultdict(dict)
        """What was written with each version."""
        self.unknown = 0
        self._metadata = metadata
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in TOPICS]
        for thread in self._threads:
            thread.start()

    def wait_for_more(self) -> None:
        """Each of them gets on."""
        before = dict(self.done)
        wait_for(
            lambda: (
                self._errors
                or all(self.done.get(each, -1) > before.get(each, -1) for each in TOPICS)
            ),
            "all write",
        )
        assert not self._errors

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert not self._errors

    def check(self, metadata: TopicMetadata) -> None:
        """What was acknowledged is there."""
        for topic, number in self.done.items():
            found = metadata.subscriptions.read_subscription_data(topic, self.name).result(WAIT_S)
            assert found is not None, topic
            assert found.value == data(number), topic
            assert self.versions[topic].get(found.version, number) == number, topic

    def _run(self, topic: str) -> None:
        try:
            self._write_all(topic)
        except BaseException as exc:
            self._errors.append(exc)
            raise

    def _write_all(self, topic: str) -> None:
        subscriptions = self._metadata.subscriptions
        number, version = 0, NEW
        while not self._over.is_set():
            wanted = data(number)
            try:
                if version == NEW:
                    done = subscriptions.create_subscription_data(topic, self.name, wanted)
                else:
                    done = subscriptions.replace_subscription_data(
                        topic, self.name, wanted, version
                    )
                version = done.result(WAIT_S)
            except MetadataReadOnlyError:
                continue
            except (BadVersionError, StoreUnavailableError) as exc:
                found = subscriptions.read_subscription_data(topic, self.name).result(WAIT_S)
                assert found is not None
                is_written = found.value == wanted
                if isinstance(exc, BadVersionError):
                    assert found.value == data(number - 1), "nobody else writes this"
                elif exc.outcome is Outcome.UNKNOWN:
                    self.unknown += 1
                version = found.version
                if not is_written:
                    continue
            assert self.versions[topic].setdefault(version, number) == number, "a version twice"
            self.done[topic] = number
            number += 1


def data(number: int) -> SubscriptionData:
    return SubscriptionData(
        SubscriptionPreferences(application={"number": str(number)}),
        SubscriptionState(MessageID(1_700_000_000_000 + number, 0)),
    )


Open = Callable[..., hqueue.Client]


@pytest.fixture
def connect(backend: Backend) -> Iterator[Open]:
    """Clients, as many processes have them."""
    clients: list[hqueue.Client] = []

    def connect(**settings: object) -> hqueue.Client:
        clients.append(backend.connect(zookeeper_session_timeout_ms=4_000, **settings))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def migration(connect: Open, queue_name: str) -> Iterator[MetadataMigration]:
    client = connect()
    client.create_queue(queue_name, partitions=1)
    yield client.metadata_migration(queue_name)
    client.delete_queue(queue_name, force=True)


def test_nothing_is_lost_while_it_is_moved_there_and_back_and_there_again(
    connect: Open, queue_name: str, migration: MetadataMigration
) -> None:
    hubs = [connect().topic_metadata(queue_name) for _ in range(2)]
    writers = [Writers(hub, str(number)) for number, hub in enumerate(hubs)]
    for to in ("hbase", "zookeeper", "hbase"):
        for each in writers:
            each.wait_for_more()
        assert migration.move(to) == 2 * len(TOPICS)
        for each in writers:
            each.wait_for_more()
        assert [hub.store for hub in hubs] == [to, to]
    for each in writers:
        each.end()
    assert not any(each.unknown for each in writers), "all acknowledged before it was copied"
    late = connect(metadata_store="hbase").topic_metadata(queue_name)
    for each in writers:
        each.check(late)
        each.check(hubs[0])
    assert migration.clear() == 3 * 2 * len(TOPICS)
    assert migration.state().old_copies == ()
    for each in writers:
        each.check(late)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("copying", marks=pytest.mark.thorough("as while it is compared")),
        pytest.param("draining", marks=pytest.mark.thorough("as while it is compared")),
        "comparing",
    ],
)
def test_a_move_that_dies_is_made_again_or_abandoned(
    connect: Open, queue_name: str, migration: MetadataMigration, step: str
) -> None:
    hub = connect().topic_metadata(queue_name)
    impatient = connect(operation_timeout_ms=200).topic_metadata(queue_name)
    writers = Writers(hub, "s")
    writers.wait_for_more()
    for ends in (migration.abandon, lambda: migration.move("hbase")):
        dying = connect()

        def die(at: str, records: int, client: hqueue.Client = dying) -> None:
            if at == step:
                # As when its process is killed: connections end, and it abandons nothing.
                client._release()
                raise Died

        with pytest.raises(Died):
            dying.metadata_migration(queue_name).move("hbase", on_progress=die)
        state = migration.state()
        assert state.phase is Phase(step)
        assert state.location == MetadataLocation("zookeeper", 0)
        if step == "copying":
            writers.wait_for_more()
        else:
            with pytest.raises(MetadataReadOnlyError) as caught:
                write_ranges(impatient, "other", NEW)
            assert caught.value.outcome is Outcome.NOT_APPLIED
        assert ends()
        writers.wait_for_more()
    writers.end()
    wait_until_known(hub, "hbase")
    writers.check(connect().topic_metadata(queue_name))
    assert migration.clear() >= len(TOPICS)


def test_an_error_leaves_it_in_force_where_it_was(
    connect: Open, queue_name: str, migration: MetadataMigration
) -> None:
    hub = connect().topic_metadata(queue_name)
    version = write_ranges(hub, "t", NEW)

    def fail(step: str, records: int) -> None:
        if step == "comparing":
            raise StoreUnavailableError("a store is away")

    with pytest.raises(StoreUnavailableError):
        migration.move("hbase", on_progress=fail)
    assert migration.state().phase is Phase.STABLE
    assert hub.store == "zookeeper"
    assert write_ranges(hub, "t", version) != version
    assert migration.clear() == 1, "what was copied"
    assert not migration.abandon()


def test_of_two_that_move_it_the_later_one_goes_on(
    connect: Open, queue_name: str, migration: MetadataMigration
) -> None:
    hub = connect().topic_metadata(queue_name)
    write_ranges(hub, "t", NEW)
    other = connect().metadata_migration(queue_name)
    moved: list[int] = []

    def overtake(step: str, records: int) -> None:
        if step == "comparing" and not moved:
            moved.append(other.move("hbase"))

    with pytest.raises(BadVersionError):
        migration.move("hbase", on_progress=overtake)
    assert moved == [1]
    assert migration.state().location.store == "hbase"
    wait_until_known(hub, "hbase")
    assert migration.move("hbase") == 0

    def turn_round(step: str, records: int) -> None:
        if step == "copying" and not records:
            with pytest.raises(InvalidInputError):
                other.move("hbase")
            assert other.abandon()

    with pytest.raises(BadVersionError):
        migration.move("zookeeper", on_progress=turn_round)
    assert hub.store == "hbase"
    write_ranges(hub, "t", ANY)


def test_versions_of_before_a_move_are_those_of_what_has_changed(
    connect: Open, queue_name: str, migration: MetadataMigration
) -> None:
    hub = connect().topic_metadata(queue_name)
    seen = {write_ranges(hub, "t", NEW)}
    migration.move("hbase")
    for there, to in (("hbase", "zookeeper"), ("zookeeper", "hbase")):
        wait_until_known(hub, there)
        found = hub.persistence.read_topic_persistence_info("t").result(WAIT_S)
        assert found is not None
        assert found.value == INFO
        assert found.version not in seen
        for old in seen:
            with pytest.raises(BadVersionError):
                write_ranges(hub, "t", old)
            with pytest.raises(BadVersionError):
                hub.persistence.delete_topic_persistence_info("t", old).result(WAIT_S)
            with pytest.raises(NoSubscriptionStateError):
                hub.subscriptions.delete_subscription_data("t", "s", old).result(WAIT_S)
        seen.add(found.version)
        seen.add(write_ranges(hub, "t", found.version))
        migration.move(to)
    with pytest.raises(InvalidInputError):
        write_ranges(hub, "t", Version(2**128 * 1_000))
    old = connect().topic_metadata(queue_name, store="zookeeper")
    assert old.store == "zookeeper"
    assert old.persistence.read_topic_persistence_info("t").result(WAIT_S) is not None


def test_hubs_acquire_their_topics_again(
    connect: Open, queue_name: str, migration: MetadataMigration
) -> None:
    hubs = []
    for number in range(2):
        metadata = connect().topic_metadata(queue_name)
        hub = HubInfo(Address("127.0.0.1", 4_080 + number), uuid.uuid4().hex)
        metadata.hubs.register(hub)
        hubs.append((metadata, hub))
    (first, a), (second, b) = hubs
    for to in ("hbase", "zookeeper"):
        won = first.election.acquire("t", a).result(WAIT_S)
        assert won.won
        assert not second.election.acquire("t", b).result(WAIT_S).won
        migration.move(to)
        for metadata, _ in hubs:
            wait_until_known(metadata, to)
        assert not first.election.release("t", won).result(WAIT_S)
        assert second.election.acquire("t", b).result(WAIT_S).won
        lost = first.election.acquire("t", a).result(WAIT_S)
        assert lost.owner == b
        assert second.election.release("t", lost).result(WAIT_S)


def test_in_an_event_loop_it_is_written_moved_and_read(
    connect: Open, queue_name: str, migration: MetadataMigration
) -> None:
    client = hqueue.aio.Client(connect())

    async def use() -> None:
        moving = client.metadata_migration(queue_name)
        hub = HubInfo(Address("127.0.0.1", 4_080), uuid.uuid4().hex)
        async with client.topic_metadata(queue_name) as metadata:
            registration = await metadata.hubs.register(hub)
            assert (await metadata.election.acquire("t", hub)).won
            for topic in TOPICS:
                await metadata.subscriptions.create_subscription_data(topic, "s", data(0))
                await metadata.persistence.write_topic_persistence_info(topic, INFO, NEW)

            def cut(phase: str, records: int) -> None:
                if phase == "draining":
                    cancelled.cancel()

            cancelled = asyncio.create_task(moving.move("hbase", on_progress=cut))
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            assert (await moving.state()).phase is Phase.STABLE
            assert await moving.move("hbase") == 2 * len(TOPICS)
            while await metadata.store() != "hbase":
                await asyncio.sleep(0.01)
            assert sorted([topic async for topic in metadata.persistence.topics()]) == TOPICS
            assert len([entry async for entry in metadata.entries()]) == 2 * len(TOPICS)
            await metadata.subscriptions.update_subscription_data("t/0", "s", data(1), ANY)
            assert await moving.clear() >= 2 * len(TOPICS)
            await registration.close()
            assert await metadata.hubs.list() == {}

    asyncio.run(use())
    assert migration.state().location.store == "hbase"


def test_where_it_is_says_whether_parts_are_updated_apart(
    connect: Open, queue_name: str, migration: MetadataMigration
) -> None:
    hub = connect().topic_metadata(queue_name)
    assert not hub.subscriptions.is_partial_update_supported
    version = hub.subscriptions.create_subscription_data("t", "s", data(0)).result(WAIT_S)
    migration.move("hbase")
    wait_until_known(hub, "hbase")
    assert hub.subscriptions.is_partial_update_supported
    state = SubscriptionData(state=data(1).state)
    with pytest.raises(BadVersionError):
        hub.subscriptions.update_subscription_data("t", "s", state, version).result(WAIT_S)
    hub.subscriptions.update_subscription_data("t", "s", state, ANY).result(WAIT_S)
    [found] = hub.subscriptions.read_subscriptions("t").result(WAIT_S).values()
    assert found.value == SubscriptionData(data(0).preferences, data(1).state)
    assert [entry.subject for entry in hub.entries()] == [("subscription", "t", "s")]
    assert list(hub.persistence.topics()) == []


def test_what_cannot_be_moved_is_refused_before_anything_happens(
    connect: Open, queue_name: str, migration: MetadataMigration
) -> None:
    with pytest.raises(SettingsError):
        migration.move("memory")
    with pytest.raises(SettingsError):
        connect(metadata_store="memory").metadata_migration(queue_name)
    with pytest.raises(InvalidInputError):
        connect().metadata_migration("no/queue")
    assert migration.state().number == 0


def wait_until_known(metadata: TopicMetadata, store: str) -> None:
    """What is read, too, is read there."""
    wait_for(lambda: metadata.store == store, f"it is known to be in {store}")


def write_ranges(metadata: TopicMetadata, topic: str, version: Version) -> Version:
    asked = metadata.persistence.write_topic_persistence_info(topic, INFO, version)
    return asked.result(WAIT_S)


@pytest.mark.servers
@pytest.mark.thorough("a session that ends in the middle of a change is in `make check`")
def test_a_hub_that_stood_still_past_its_session_goes_on_where_it_is_in_force(
    server: object,
    connect: Open,
    queue_name: str,
    migration: MetadataMigration,
    server_environment: dict[str, str],
) -> None:
    unknown = 0
    with Program("write_metadata", queue_name, "t", environment=server_environment) as program:
        program.await_ready()
        assert list(program.lines(20))
        for to in ("hbase", "zookeeper"):
            with program.paused():
                assert migration.move(to) == 1, "its session has ended by then"
                moved = number_in_force(connect().topic_metadata(queue_name))
            for line in program.lines():
                unknown += "unknown" in line
                last = int(line.split()[-1])
                if last > moved + 10:  # It goes on.
                    break
        for line in program.result():
            unknown += "unknown" in line
            last = int(line.split()[-1])
    assert number_in_force(connect().topic_metadata(queue_name)) == last
    assert unknown <= 2, "what was under way when it stood still"


def number_in_force(metadata: TopicMetadata) -> int:
    found = metadata.subscriptions.read_subscription_data("t", "s").result(WAIT_S)
    assert found is not None
    assert found.value.state is not None
    return found.value.state.consumed.timestamp
