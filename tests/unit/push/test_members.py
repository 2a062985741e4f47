"""Several subscribers of one name that share its partitions, over stores in memory. What a worker
does is done by hand.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, cast

import pytest
from thriftpy2.thrift import TApplicationException
from thriftpy2.transport import TTransportException

import hqueue
from hqueue import InvalidInputError, MessageID, ReceivedMessage, Status, Subscription
from hqueue.errors import SubscriberConnectedError, SubscriberNotFoundError
from hqueue.metadata import Address, DeliveryOptions, SubscriptionKey
from hqueue.metadata.ports import ANY, Change
from hqueue.push.listener import Listeners
from hqueue.push.service import Consumption
from hqueue.push.subscriber import Subscriber
from hqueue.rpc.messages import RefusedCallError
from hqueue.runtime.loop import blocking
from hqueue.runtime.steps import Wait
from tests.support.backends import MemoryBackend
from tests.support.delivering import Delivering
from tests.support.memory.metadata import MemoryServer, MemorySession
from tests.support.subscriber_faces import LoopedSubscriber
from tests.support.waiting import wait_for

PARTITIONS = 4
SESSION_MS = 500
NOT_ENDED = "calls have not ended"

Listen = Callable[[Sequence[ReceivedMessage]], None]


def nothing(messages: Sequence[ReceivedMessage]) -> None:
    """A listener."""


class Scene:
    """A queue, its subscribers, and what they got."""

    def __init__(self, client: hqueue.Client, server: MemoryServer, *, in_loop: bool) -> None:
        self.client = client
        self._in_loop = in_loop
        self.server = server
        self.queue = client.create_queue("events", partitions=PARTITIONS)
        self.started: list[Subscriber] = []
        self.sessions: dict[Subscriber, MemorySession] = {}

    def make(
        self,
        listen: Listen | None = None,
        *,
        partitions: Collection[int] = (),
        shared: bool = True,
        calls_max: int = 1,
        **wanted: Any,
    ) -> Subscriber:
        subscription = Subscription("s", **wanted).add_partitions(partitions)
        in_loop = partial(LoopedSubscriber, self.client, "events")
        make: Callable[..., Any] = in_loop if self._in_loop else self.queue.subscriber
        made: Subscriber = make(
            subscription,
            listen or nothing,
            host="127.0.0.1",
            shared=shared,
            calls_max=calls_max,
        )
        self.started.append(made)
        return made

    def start(self, listen: Listen | None = None, **options: Any) -> Subscriber:
        made, before = self.make(listen, **options), self.server.sessions
        made.start()
        (self.sessions[made],) = [each for each in self.server.sessions if each not in before]
        return made

    def present(self) -> dict[int, Address]:
        """Where each partition's subscriber is."""
        listed = self.client.coordination.subscriptions.list("events")
        return {key.partition: each.address for key, each in listed.items() if each}

    def claims(self) -> Collection[str]:
        return self.client.coordination.store.records.keys(
            "/hqueue/subscribers/events/consumers/s/owners", 2
        )

    def settle(self, *shares: tuple[Subscriber, int]) -> None:
        """Wait until all partitions are shared so."""

        def settled() -> bool:
            addresses: dict[Address, set[int]] = defaultdict(set)
            for partition, address in self.present().items():
                addresses[address].add(partition)
            return all(
                len(subscriber.partitions) == count
                and set(subscriber.partitions) == addresses[cast(Address, subscriber.address)]
                for subscriber, count in shares
            )

        wait_for(settled, f"they share {[count for _, count in shares]}")


@pytest.fixture(params=["threads", "loop"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """Subscribers whose calls threads serve, or an event loop each."""
    server = MemoryServer(session_timeout_ms=SESSION_MS)
    with MemoryBackend(coordination=server).connect() as client:
        made = Scene(client, server, in_loop=request.param == "loop")
        yield made
        for subscriber in made.started:
            subscriber.stop()


BY_THREADS = pytest.mark.parametrize("scene", ["threads"], indirect=True)
"""A listener in a loop is cancelled when it takes too long."""


def message(partition: int, number: int = 1) -> ReceivedMessage:
    return ReceivedMessage("t", b"v", MessageID(number), partition)


def deliver(subscriber: Subscriber, partition: int, number: int = 1) -> int:
    with Delivering(subscriber.address) as worker:
        return worker.deliver([message(partition, number)])


class Held:
    """A listener that ends its calls when it is let."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Semaphore(0), threading.Event()
        self.answers: list[int] = []

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.entered.release()
        assert self.go_on.wait(30)

    def called(self, subscriber: Subscriber, partition: int) -> threading.Thread:
        """Call it; when this returns the call is under way."""
        calling = threading.Thread(target=self._call, args=(subscriber, partition))
        calling.start()
        assert self.entered.acquire(timeout=30)
        return calling

    def _call(self, subscriber: Subscriber, partition: int) -> None:
        with contextlib.suppress(TTransportException):
            self.answers.append(deliver(subscriber, partition))


def test_they_share_the_partitions_as_they_come_and_go(scene: Scene) -> None:
    first = scene.start()
    scene.settle((first, 4))
    second = scene.start()
    scene.settle((first, 2), (second, 2))
    third = scene.start()
    scene.settle((third, 1))
    assert first.stop()
    scene.settle((second, 2), (third, 2))
    assert second.stop()
    scene.settle((third, 4))
    assert third.stop()
    assert scene.present() == {}
    assert not scene.claims()


def test_what_stays_is_present_all_the_time(scene: Scene) -> None:
    first = scene.start()
    scene.settle((first, 4))
    before = scene.client.coordination.subscriptions.list("events")
    second = scene.start()
    scene.settle((first, 2), (second, 2))
    after = scene.client.coordination.subscriptions.list("events")
    kept = [key for key in after if key.partition in first.partitions]
    assert [after[key] for key in kept] == [before[key] for key in kept]


def test_a_partition_is_handed_over_when_its_call_has_ended(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    listener, got = Held(), list[ReceivedMessage]()
    first = scene.start(listener, calls_max=4)
    scene.settle((first, 4))
    calls = [listener.called(first, partition) for partition in range(4)]
    second = scene.start(got.extend)
    wait_for(lambda: len(scene.present()) == 2, "it is absent where it must hand over")
    handed = {0, 1, 2, 3} - scene.present().keys()
    for partition in handed:
        with pytest.raises(TApplicationException):
            deliver(first, partition, 2)
        with pytest.raises(TApplicationException):
            deliver(second, partition, 2)
    assert second.partitions == []
    assert len(scene.claims()) == 4, "what is still dealt with is nobody else's"
    listener.go_on.set()
    for each in calls:
        each.join(30)
    scene.settle((first, 2), (second, 2))
    assert listener.answers == [Status.DONE] * 4
    assert set(second.partitions) == handed
    assert not got
    assert NOT_ENDED not in caplog.text, "the calls took no longer than they may"


def test_one_that_stops_is_first_absent_and_keeps_what_a_call_is_under_way_for(
    scene: Scene,
) -> None:
    listener, got = Held(), list[ReceivedMessage]()
    first = scene.start(listener)
    scene.settle((first, 4))
    calling = listener.called(first, 2)
    second = scene.start(got.extend)
    stopped: list[bool] = []
    stopping = threading.Thread(target=lambda: stopped.append(first.stop()))
    stopping.start()
    scene.settle((second, 3))
    assert 2 not in scene.present()
    assert len(scene.claims()) == 4, "what is still dealt with is nobody else's"
    with pytest.raises(TApplicationException):
        deliver(first, 2, 2)
    with pytest.raises(TApplicationException):
        deliver(second, 2, 2)
    with pytest.raises(SubscriberConnectedError):
        scene.client.seek_subscriber("events", "s", "latest", partitions=[2])
    listener.go_on.set()
    stopping.join(30)
    calling.join(30)
    assert stopped == [True]
    assert listener.answers == [0], "the answer arrives before it hangs up"
    scene.settle((second, 4))
    assert deliver(second, 2, 2) == Status.DONE


def test_a_call_for_what_is_not_its_own_is_refused_as_a_call_not_as_a_try(scene: Scene) -> None:
    got: list[ReceivedMessage] = []
    first = scene.start(got.extend)
    second = scene.start(got.extend)
    scene.settle((first, 2), (second, 2))
    for partition in second.partitions:
        with pytest.raises(TApplicationException, match="does not have the partition"):
            deliver(first, partition)
        assert not got
        assert deliver(second, partition) == Status.DONE
        got.clear()


def test_one_that_is_not_certain_of_its_session_handles_no_call(scene: Scene) -> None:
    got: list[ReceivedMessage] = []
    first = scene.start(got.extend)
    scene.settle((first, 4))
    assert deliver(first, 0) == Status.DONE
    scene.sessions[first].suspend()

    def refused() -> bool:
        try:
            deliver(first, 0)
        except TApplicationException:
            return True
        return False

    wait_for(refused, "it is not certain any more")
    assert scene.present().keys() == {0, 1, 2, 3}, "its session is not over yet"
    count = len(got)
    second = scene.start(got.extend)
    scene.settle((second, 4))
    assert refused()
    scene.sessions[first].resume()
    scene.settle((first, 2), (second, 2))
    assert len(got) == count
    with pytest.raises(TApplicationException):
        deliver(first, second.partitions[0])
    assert deliver(first, first.partitions[0]) == Status.DONE


def test_one_that_lost_its_session_shares_again(scene: Scene) -> None:
    first, second = scene.start(), scene.start()
    scene.settle((first, 2), (second, 2))
    for _ in range(3):
        scene.sessions[first].expire()
        scene.settle((first, 2), (second, 2))
        for partition in first.partitions:
            assert deliver(first, partition) == Status.DONE
    scene.sessions[first].expire()
    scene.sessions[second].expire()
    scene.settle((first, 2), (second, 2))


def test_chosen_partitions_are_shared_among_those_that_chose_them(scene: Scene) -> None:
    first = scene.start(partitions=[1, 3])
    scene.settle((first, 2))
    second = scene.start(partitions=[3, 1])
    scene.settle((first, 1), (second, 1))
    assert scene.present().keys() == {1, 3}


def test_what_two_want_who_do_not_want_the_same_is_one_s_and_all_of_it_is_someone_s(
    scene: Scene,
) -> None:
    first = scene.start(partitions=[0, 1])
    scene.settle((first, 2))
    second = scene.start()
    scene.settle((first, 2), (second, 2))
    assert first.partitions == [0, 1]
    first.stop()
    scene.settle((second, 4))


def test_one_that_shares_with_nobody_keeps_the_others_out_and_they_keep_out_it(
    scene: Scene,
) -> None:
    alone = scene.start(shared=False, partitions=[1])
    with pytest.raises(SubscriberConnectedError):
        scene.start()
    alone.stop()
    first = scene.start()
    scene.settle((first, 4))
    with pytest.raises(SubscriberConnectedError):
        scene.start(shared=False)
    assert first.failure is None


def test_what_stays_in_the_way_is_a_failure_and_its_partitions_are_given_up(scene: Scene) -> None:
    address = "/hqueue/queues/events/1/s/address"
    foreign = scene.server.open()
    first = scene.start()
    scene.settle((first, 4))
    scene.sessions[first].suspend()
    wait_for(lambda: 1 not in scene.present(), "its session is over")
    foreign.ephemerals.claim({address: b'{"version": 1, "address": "elsewhere:1"}'})
    scene.sessions[first].resume()
    with pytest.raises(SubscriberConnectedError):
        first.wait(30)
    wait_for(lambda: not scene.claims(), "it has given up all claims")
    assert first.partitions == []
    foreign.close()


def test_without_a_checkpoint_it_fails(scene: Scene) -> None:
    first = scene.start()
    scene.settle((first, 4))
    node = "/hqueue/queues/events/1/s"
    scene.sessions[first].suspend()
    wait_for(lambda: not scene.present(), "its session is over")
    scene.client.coordination.store.records.delete({node: ANY})
    scene.sessions[first].resume()
    with pytest.raises(SubscriberNotFoundError):
        first.wait(30)


def test_it_is_not_moved_reset_or_deleted_while_a_member_is_there(scene: Scene) -> None:
    first = scene.start(partitions=[0])
    scene.settle((first, 1))
    with pytest.raises(SubscriberConnectedError):
        scene.client.seek_subscriber("events", "s", "latest")
    with pytest.raises(SubscriberConnectedError):
        scene.client.delete_subscriber("events", "s")
    with pytest.raises(SubscriberConnectedError):
        scene.start(reset=True)
    first.stop()
    scene.client.seek_subscriber("events", "s", MessageID(7))
    second = scene.start(reset=True)
    scene.settle((second, 4))
    key = SubscriptionKey("events", 0, "s")
    found = scene.client.coordination.checkpoints.read(key)
    assert found is not None
    assert found.next == MessageID(0)


def test_nothing_is_left_of_one_that_was_deleted(scene: Scene) -> None:
    first, second = scene.start(), scene.start(partitions=[2])
    wait_for(lambda: len(scene.present()) == 4, "all is shared")
    first.stop()
    second.stop()
    scene.client.delete_subscriber("events", "s")
    assert scene.client.list_subscribers("events") == []
    assert scene.client.coordination.store.records.keys("/hqueue/subscribers", 1) == []


def test_one_that_stops_while_it_is_cut_off_waits_for_nothing(scene: Scene) -> None:
    first = scene.start()
    scene.settle((first, 4))
    scene.sessions[first].suspend()
    assert first.stop()
    second = scene.start()
    scene.settle((second, 4))


@BY_THREADS
def test_a_listener_that_never_ends_is_logged_and_bounds_the_stop(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Held()
    first = scene.start(listener, delivery=DeliveryOptions(timeout_ms=300))
    scene.settle((first, 4))
    calling = listener.called(first, 0)
    second = scene.start()
    wait_for(lambda: NOT_ENDED in caplog.text, "what is waited for is logged")
    assert not first.stop()
    scene.settle((second, 4))
    listener.go_on.set()
    calling.join(30)


def test_members_that_want_other_topics_are_logged_and_each_serves_its_own(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    first = scene.start(topics=["a"])
    scene.settle((first, 4))
    assert "have different topics" not in caplog.text
    second = scene.start(topics=["b"])
    assert "have different topics" in caplog.text
    scene.settle((first, 2), (second, 2))
    listed = scene.client.coordination.subscriptions.list("events")
    wanted = {each.address: each.topics for each in listed.values() if each}
    assert wanted == {first.address: frozenset("a"), second.address: frozenset("b")}


def test_sharing_is_asked_for_in_full(scene: Scene) -> None:
    with pytest.raises(InvalidInputError):
        scene.make(shared="yes")  # type: ignore[arg-type]


def test_a_call_in_another_layout_is_refused_as_well(scene: Scene) -> None:
    @contextlib.contextmanager
    def admit(partition: int) -> Iterator[Wait]:
        yield blocking(lambda: partition == 1)

    got: list[ReceivedMessage] = []
    consumption = Consumption(Listeners(got.extend, 1_000, "sub"), 1, 1_000, admit)
    idl = Delivering.idl
    sent = [[idl.TMessage(idl.TMessageID(1, 0), number, b"t", b"v")] for number in range(2)]
    with pytest.raises(RefusedCallError):
        consumption.consumeMessages(sent[0])
    assert consumption.consumeMessages(sent[1]).number == Status.DONE
    assert [each.partition for each in got] == [1]


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "alone"])
def test_a_presence_or_a_claim_that_somebody_removes_or_overwrites_is_there_again(
    scene: Scene, shared: bool
) -> None:
    first = scene.start(topics=["a"], shared=shared)
    scene.settle((first, 4))
    records = scene.client.coordination.store.records
    keys = [SubscriptionKey("events", partition, "s") for partition in range(PARTITIONS)]
    paths = scene.client.coordination.paths
    made = [path for key in keys for path in (paths.address(key), paths.topics(key))]
    made += scene.claims()
    before = {path: record.value for path, record in records.read(made).items()}
    assert len(before) == 8 + (4 if shared else 0)

    def is_whole() -> bool:
        return {path: record.value for path, record in records.read(made).items()} == before

    for path in made:
        records.delete({path: ANY})
        wait_for(is_whole, f"{path} is there again")
        records.write({path: Change(b"no record", ANY)})
        wait_for(is_whole, f"{path} has its value again")
    records.delete(dict.fromkeys(made, ANY))
    wait_for(is_whole, "all is there again")
    scene.settle((first, 4))
    assert first.failure is None
    assert deliver(first, 0) == Status.DONE


@BY_THREADS
def test_a_fault_of_a_member_is_its_subscriber_s_failure_and_others_get_its_partitions(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = scene.start()
    member = first._reception.member
    assert member is not None
    scene.settle((first, PARTITIONS))

    def fail() -> bool:
        raise SystemExit("a fault")

    assert member._member is not None
    monkeypatch.setattr(member._member, "changes", fail)
    member._due.ring()
    with pytest.raises(hqueue.HQueueError, match="the subscriber's member failed"):
        first.wait(30)
    first.stop()
    scene.settle((scene.start(), PARTITIONS))
