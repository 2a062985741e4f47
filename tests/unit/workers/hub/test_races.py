"""Two hubs are called for a topic at once, and one stands still at each step: one owns it then."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

import hqueue
from hqueue import Message, Outcome, StoreUnavailableError
from hqueue.errors import NoSubscriptionStateError
from hqueue.metadata.managers import LogRange
from hqueue_workers.hub.authorizer import Operation
from hqueue_workers.hub.owning.queue_topics import QueueTopics
from hqueue_workers.hub.serving.callers import Named
from hqueue_workers.hub.writing.owned_topic import Published, RedirectedError
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread
from tests.support.stopping import stopped_at
from tests.support.waiting import wait_for

WAIT_S = 60.0
QUEUE = "q"


class Scene:
    """Two hubs, and a queue."""

    def __init__(self, stack: contextlib.ExitStack, store: str) -> None:
        backend = MemoryBackend().apart(10_000)
        self.client = stack.enter_context(backend.connect(metadata_store=store))
        self.client.create_queue(QUEUE, partitions=2)
        self.hubs = [
            stack.enter_context(
                HubThread(
                    stack.enter_context(backend.connect(metadata_store=store)),
                    QUEUE,
                    balance_ms=3_600_000,
                )
            )
            for _ in range(2)
        ]
        self.metadata = stack.enter_context(self.client.topic_metadata(QUEUE))

    def topics(self, number: int) -> QueueTopics:
        return self.hubs[number].hosted(QUEUE).topics

    def publish(self, number: int, value: bytes) -> Future[Published]:
        """Call a hub that was chosen: it should own the topic."""
        messages = [Message("t", value)]
        return (
            self.hubs[number]
            .hosted(QUEUE)
            .publishing.publish(Named(None, "me"), "t", messages, len(value), redirected=True)
        )

    def ranges(self) -> list[LogRange]:
        found = self.metadata.persistence.read_topic_persistence_info("t").result(WAIT_S)
        assert found is not None
        return list(found.value.ranges)

    def values(self) -> list[bytes]:
        """What lies in the topic's ranges, in the order of the IDs."""
        found = [
            (message.id, message.value)
            for each in self.ranges()
            for message in self.client.queue(QUEUE).scan()
            if each.partition == message.partition
            and each.first <= message.id
            and (each.last is None or message.id <= each.last)
        ]
        return [value for _, value in sorted(set(found))]


@pytest.fixture(params=["zookeeper", "hbase"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack, request.param)


STEPS = ["look", "create", "acquire"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_hub_that_stands_still_at_a_step_meets_the_other_as_the_owner(
    scene: Scene, step: str, *, after: bool
) -> None:
    with stopped_at(scene.topics(0).records, step, after=after) as (reached, go_on):
        slow = scene.publish(0, b"slow")
        assert reached.wait(WAIT_S)
        quick = scene.publish(1, b"quick")
        if step == "acquire" and after:  # It owns the topic: the other sends its caller to it.
            error = quick.exception(WAIT_S)
            assert isinstance(error, RedirectedError)
            assert error.address == scene.hubs[0].address
            go_on.set()
            assert slow.result(WAIT_S)
            assert scene.values() == [b"slow"]
            assert scene.hubs[0].owns(QUEUE) == {"t"}
            return
        assert quick.result(WAIT_S)
        go_on.set()
        error = slow.exception(WAIT_S)
    assert isinstance(error, RedirectedError)
    assert error.address == scene.hubs[1].address
    assert scene.values() == [b"quick"]
    assert [scene.hubs[n].owns(QUEUE) for n in range(2)] == [set(), {"t"}]
    assert len(scene.ranges()) == 1


@pytest.mark.parametrize("step", ["read_topic_persistence_info", "write_topic_persistence_info"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_hub_that_stands_still_in_a_take_over_while_it_is_deposed_writes_to_no_closed_range(
    scene: Scene, step: str, *, after: bool
) -> None:
    assert scene.publish(1, b"first").result(WAIT_S)
    scene.topics(1).abandon("t").result(WAIT_S)
    persistence = scene.hubs[0].hosted(QUEUE).metadata.persistence
    with stopped_at(persistence, step, after=after) as (reached, go_on):
        slow = scene.publish(0, b"slow")
        assert reached.wait(WAIT_S)
        # Its record goes, as when its session ends while it stands still.
        ownership = scene.metadata.ownership
        found = ownership.read_owner_info("t").result(WAIT_S)
        if found is not None:
            ownership.delete_owner_info("t", found.version).result(WAIT_S)
        assert scene.publish(1, b"quick").result(WAIT_S)
        go_on.set()
        error = slow.exception(WAIT_S)
    ranges = scene.ranges()
    assert [each.epoch for each in ranges] == sorted({each.epoch for each in ranges})
    assert all(each.last is not None for each in ranges[:-1])
    assert all(a.last < b.first for a, b in itertools.pairwise(ranges) if a.last)
    values = scene.values()
    assert values[0] == b"first"
    assert (b"slow" in values) == (error is None)
    assert b"quick" in values


def test_a_hub_whose_topic_was_taken_over_unseen_is_fenced_and_sends_its_callers_on(
    scene: Scene,
) -> None:
    assert scene.publish(0, b"first").result(WAIT_S)
    ownership = scene.metadata.ownership
    found = ownership.read_owner_info("t").result(WAIT_S)
    assert found is not None
    ownership.delete_owner_info("t", found.version).result(WAIT_S)
    second = scene.publish(1, b"second").result(WAIT_S)
    assert scene.hubs[0].owns(QUEUE) == {"t"}, "it does not know yet"
    error = scene.publish(0, b"late").exception(WAIT_S)
    assert isinstance(error, RedirectedError)
    assert error.address == scene.hubs[1].address
    assert scene.hubs[0].owns(QUEUE) == set()
    third = scene.publish(1, b"third").result(WAIT_S)
    assert second.id < third.id
    assert scene.values() == [b"first", b"second", b"third"]


def test_a_topic_that_is_abandoned_under_load_loses_nothing_and_keeps_its_order(
    scene: Scene,
) -> None:
    hubs = ",".join(str(hub.address) for hub in scene.hubs)
    with hqueue.connect_hubs(hubs, queue=QUEUE) as client:
        ids = []
        for number in range(60):
            ids.append(client.topic("t").publish(b"%d" % number))
            if number % 10 == 5:
                for n in range(2):
                    scene.topics(n).abandon("t")
    assert ids == sorted(ids)
    assert scene.values() == [b"%d" % number for number in range(60)]
    assert len(scene.ranges()) > 1


def test_a_hub_that_ends_while_a_topic_becomes_its_own_releases_that_one_too(
    scene: Scene,
) -> None:
    topics = scene.topics(0)
    with stopped_at(topics.records, "acquire", after=True) as (reached, go_on):
        scene.publish(0, b"slow")
        assert reached.wait(WAIT_S)
        ending = threading.Thread(target=scene.hubs[0].terminate)
        ending.start()
        wait_for(lambda: topics.closing, "it ends")
        go_on.set()
        ending.join(WAIT_S)
        assert not ending.is_alive()
    assert scene.publish(1, b"next").result(WAIT_S)
    assert scene.hubs[1].owns(QUEUE) == {"t"}


def test_a_hub_that_stands_still_while_its_topic_is_deleted_does_not_bring_it_back(
    scene: Scene,
) -> None:
    assert scene.publish(1, b"old").result(WAIT_S)
    scene.topics(1).abandon("t").result(WAIT_S)
    managing = scene.hubs[1].hosted(QUEUE).managing
    with stopped_at(scene.topics(0).records, "look", after=True) as (reached, go_on):
        slow = scene.topics(0).serve("me", Operation.MOVE, "t", redirected=True, create=False)
        assert reached.wait(WAIT_S)
        assert managing.delete("me", "t", redirected=True).result(WAIT_S)
        go_on.set()
        error = slow.exception(WAIT_S)
    assert isinstance(error, NoSubscriptionStateError)
    assert [hub.owns(QUEUE) for hub in scene.hubs] == [set(), set()]
    assert scene.metadata.persistence.read_topic_persistence_info("t").result(WAIT_S) is None
    assert scene.metadata.ownership.read_owner_info("t").result(WAIT_S) is None


def test_a_hub_whose_session_ended_owns_nothing_and_takes_its_topics_again_when_called(
    scene: Scene,
) -> None:
    before = scene.publish(0, b"before").result(WAIT_S)
    scene.hubs[0].client.coordination.store.expire()  # type: ignore[attr-defined]
    wait_for(lambda: scene.hubs[0].owns(QUEUE) == set(), "it owns nothing")

    def published() -> Published | None:
        done = scene.publish(0, b"after")
        error = done.exception(WAIT_S)
        if error is None:
            return done.result()
        assert isinstance(error, StoreUnavailableError)
        assert error.outcome is Outcome.NOT_APPLIED
        return None

    after = wait_for(published, "it takes the topic again")
    assert before.id < after.id
    assert scene.values() == [b"before", b"after"]
    assert len(scene.ranges()) == 2


def test_a_hub_whose_session_may_be_over_publishes_nothing_until_it_is_certain_again(
    scene: Scene,
) -> None:
    assert scene.publish(0, b"before").result(WAIT_S)
    store = scene.hubs[0].client.coordination.store
    hub = scene.hubs[0].hub
    store.suspend()  # type: ignore[attr-defined]
    wait_for(lambda: not hub.holds, "it is not certain")
    error = scene.publish(0, b"meanwhile").exception(WAIT_S)
    assert isinstance(error, StoreUnavailableError)
    assert error.outcome is Outcome.NOT_APPLIED
    store.resume()  # type: ignore[attr-defined]
    wait_for(lambda: hub.holds, "it is certain again")
    assert scene.publish(0, b"after").result(WAIT_S)
    assert scene.values() == [b"before", b"after"]
