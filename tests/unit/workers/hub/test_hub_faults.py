"""What hubs do while the log, a session or a subscriber fails under them: on stores in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import hqueue
from hqueue import HubClient, Message, MessageID, Outcome, Status, StoreUnavailableError
from hqueue.runtime.thread_pool import ThreadPool
from hqueue_workers.hub.hosted_queue import HostedQueue
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.serving.callers import Named
from hqueue_workers.hub.subscribing import delivering
from hqueue_workers.hub.subscribing.subscription_session import Claimant, Delivery
from hqueue_workers.hub.subscribing.subscriptions import SubscribeMode
from hqueue_workers.hub.writing.owned_topic import Published, RedirectedError
from tests.support.backends import LossyWay, MemoryBackend
from tests.support.hub_subscribers import Subscriber
from tests.support.hubs import HubThread
from tests.support.lagging import Lagging
from tests.support.proxy import Fate
from tests.support.stopping import made_later
from tests.support.waiting import wait_for

WAIT_S = 60.0
QUEUE = "q"
SESSION_MS = 2_000


class Scene:
    """Hubs, each with a way to the store of its own, and a queue of one partition for each."""

    def __init__(self, stack: contextlib.ExitStack, store: str) -> None:
        self.stack = stack
        self.store = store
        self.backend = MemoryBackend().apart(SESSION_MS)
        self.client = stack.enter_context(self.backend.connect(metadata_store=store))
        self.client.create_queue(QUEUE, partitions=2)
        self.metadata = stack.enter_context(self.client.topic_metadata(QUEUE))
        self.ways: list[LossyWay] = []
        self.hubs: list[HubThread] = []

    def hub(
        self,
        operation_timeout_ms: int = 20_000,
        limits: HubLimits | None = None,
        **settings: Any,
    ) -> HubThread:
        way = self.stack.enter_context(self.backend.lossy())
        self.ways.append(way)
        client = way.connect(metadata_store=self.store, operation_timeout_ms=operation_timeout_ms)
        given = {"balance_ms": 3_600_000, **settings}
        running = HubThread(self.stack.enter_context(client), QUEUE, limits=limits, **given)
        self.hubs.append(self.stack.enter_context(running))
        return self.hubs[-1]

    def hosted(self, number: int) -> HostedQueue:
        return self.hubs[number].hosted(QUEUE)

    def publish(self, value: bytes, number: int = 0) -> Future[Published]:
        """Call a hub that was chosen: it should own the topic."""
        messages = [Message("t", value)]
        publishing = self.hosted(number).publishing
        return publishing.publish(Named(None, "me"), "t", messages, len(value), redirected=True)

    def subscriber(self, **named: Any) -> Subscriber:
        made = Subscriber(QUEUE, lambda: [hub.address for hub in self.hubs], **named)
        return self.stack.enter_context(made)

    def hub_client(self, **options: Any) -> HubClient:
        hubs = [hub.address for hub in self.hubs]
        return self.stack.enter_context(hqueue.connect_hubs(hubs, queue=QUEUE, **options))

    def owner(self) -> HubThread:
        (owner,) = [hub for hub in self.hubs if "t" in hub.owns(QUEUE)]
        return owner

    def cursor(self) -> MessageID | None:
        """Of the subscription, as it is stored."""
        found = self.metadata.subscriptions.read_subscription_data("t", "sub").result(WAIT_S)
        assert found is not None
        assert found.value.state is not None
        return found.value.state.consumed

    def is_there(self) -> bool:
        """Whether there is the subscription."""
        asked = self.metadata.subscriptions.read_subscription_data("t", "sub")
        return asked.result(WAIT_S) is not None

    def values(self) -> list[bytes]:
        """What the topic has, over all its ranges."""
        with self.client.queue(QUEUE).scan_topic("t") as scanner:
            return [message.value for message in scanner]

    def depose(self) -> None:
        """The owner's record goes, as when its session ends while it stands still."""
        ownership = self.metadata.ownership
        found = ownership.read_owner_info("t").result(WAIT_S)
        assert found is not None
        ownership.delete_owner_info("t", found.version).result(WAIT_S)


@pytest.fixture(params=["zookeeper", "hbase"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack, request.param)


def test_a_hub_says_when_it_is_ready_and_where(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hqueue_workers.ready")
    address = scene.hub().address
    said = [each.getMessage() for each in caplog.records if each.name == "hqueue_workers.ready"]
    assert said == [f"the hub of {QUEUE} is ready; it listens at {address}"]


def test_an_append_of_unknown_outcome_reaches_its_subscriber_once_and_in_order(
    scene: Scene,
) -> None:
    scene.hub(operation_timeout_ms=1_000)
    sub = scene.subscriber()
    sub.subscribe("t")
    assert scene.publish(b"a").result(WAIT_S)
    applied = iter([Fate.LOSE_ANSWER])
    # One append comes in, and nobody can say so: the store can't be reached any more.
    scene.ways[0].set_fate(
        lambda method: (
            next(applied, Fate.LOSE_REQUEST) if method == "put_if_absent" else Fate.LOSE_REQUEST
        )
    )
    error = scene.publish(b"unknown").exception(WAIT_S)
    assert isinstance(error, StoreUnavailableError)
    assert error.outcome is Outcome.UNKNOWN
    scene.ways[0].set_fate(lambda method: Fate.PASS)
    last = scene.publish(b"b").result(WAIT_S).id
    wait_for(lambda: sub.values[-1:] == [b"b"], "what came after it is there")
    assert sub.values == [b"a", b"unknown", b"b"] == scene.values()
    wait_for(lambda: scene.cursor() == last, "its cursor is stored")


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_a_hub_that_stood_still_in_an_append_while_its_topic_was_taken_over_is_fenced(
    scene: Scene, *, applied: bool
) -> None:
    scene.hub()
    scene.hub()
    assert scene.publish(b"first").result(WAIT_S)
    reached, go_on = threading.Event(), threading.Event()

    def stand_still(method: str) -> Fate:
        if method != "put_if_absent" or reached.is_set():
            return Fate.PASS
        reached.set()
        assert go_on.wait(WAIT_S)
        return Fate.PASS

    def lose_then_stand_still(method: str) -> Fate:
        """The store has done it, and the hub stands still before it can look that up."""
        if method == "put_if_absent" and not reached.is_set():
            reached.set()
            return Fate.LOSE_ANSWER
        if reached.is_set():
            assert go_on.wait(WAIT_S)
        return Fate.PASS

    scene.ways[0].set_fate(lose_then_stand_still if applied else stand_still)
    slow = scene.publish(b"slow")
    assert reached.wait(WAIT_S)
    scene.depose()
    quick = scene.publish(b"quick", 1).result(WAIT_S)
    go_on.set()
    error = slow.exception(WAIT_S)
    if applied:
        assert error is None
        assert slow.result().id < quick.id
        assert scene.values() == [b"first", b"slow", b"quick"]
    else:
        assert isinstance(error, RedirectedError)
        assert error.address == scene.hubs[1].address
        assert scene.values() == [b"first", b"quick"]
    late = scene.publish(b"late").exception(WAIT_S)
    assert isinstance(late, RedirectedError)
    assert scene.hubs[0].owns(QUEUE) == set()
    assert scene.hubs[0].counted("hqueue_hub_fenced_topics_total") == 1


def lag(scene: Scene, end: MessageID) -> Lagging:
    """Let some scans be answered by a server that does not know what was appended lately."""
    lagging = Lagging(scene.hosted(0).log)
    for each in scene.hosted(0).topics.owned():
        lagging.ends[each.partition] = int(end) + 1
    lagging.scans_left = 2
    return lagging


def test_what_a_server_that_stood_still_does_not_know_is_not_passed_by(scene: Scene) -> None:
    scene.hub()
    sub = scene.subscriber()
    sub.subscribe("t", attach=False)
    known = scene.publish(b"a").result(WAIT_S).id
    assert scene.publish(b"b").result(WAIT_S)
    lagging = lag(scene, known)
    sub.subscribe("t", 1)
    wait_for(lambda: sub.values[:1] == [b"a"], "it reads the log")
    last = scene.publish(b"c").result(WAIT_S).id
    wait_for(lambda: scene.cursor() == last, "its cursor is stored")
    assert sub.values == [b"a", b"b", b"c"]
    assert lagging.scans_left == 0


def test_numbers_that_a_server_that_stood_still_does_not_know_are_known_to_the_next_owner(
    scene: Scene,
) -> None:
    hub = scene.hub()
    client = scene.hub_client(publisher="me")
    known = client.topic("t").publish_idempotent([b"1"], sequence_number=1).ids[-1]
    client.topic("t").publish_idempotent([b"2"], sequence_number=2)
    lagging = lag(scene, known)
    scene.hosted(0).topics.abandon("t").result(WAIT_S)
    again = scene.hub_client(publisher="me")
    assert again.topic("t").publish_idempotent([b"2"], sequence_number=2).duplicates == 1
    assert hub.owns(QUEUE) == {"t"}
    assert lagging.scans_left == 0
    assert scene.values() == [b"1", b"2"]


def expire(hub: HubThread) -> None:
    hub.client.coordination.store.expire()  # type: ignore[attr-defined]


def stand_apart(hub: HubThread) -> None:
    """The hub does not reach ZooKeeper for as long as its session lasts, and longer."""
    store: Any = hub.client.coordination.store
    store.suspend()


@pytest.mark.parametrize("end", [expire, stand_apart])
def test_a_clients_subscription_goes_on_at_its_cursor_when_its_hubs_session_ended_unseen(
    scene: Scene, end: Callable[[HubThread], None]
) -> None:
    scene.hub()
    scene.hub()
    came: list[hqueue.ReceivedMessage] = []
    client = scene.hub_client()
    subscription = client.topic("t").subscribe("sub", came.extend)
    sent = [b"%d" % number for number in range(10)]
    for value in sent:
        client.topic("t").publish(value)
    wait_for(lambda: [each.value for each in came] == sent, "they came")
    owner = scene.owner()
    end(owner)
    for number in range(10, 20):
        sent.append(b"%d" % number)
        client.topic("t").publish(sent[-1])
    owner.client.coordination.store.resume()  # type: ignore[attr-defined]
    wait_for(lambda: came[-1].value == sent[-1], "it goes on")
    assert list(dict.fromkeys(each.value for each in came)) == sent, "none is lost, in order"
    assert scene.values() == sent
    assert not subscription.ended


def test_a_clients_subscription_goes_on_at_its_cursor_when_its_hub_was_fenced(scene: Scene) -> None:
    scene.hub()
    scene.hub()
    assert scene.publish(b"before").result(WAIT_S)
    came: list[hqueue.ReceivedMessage] = []
    subscription = scene.hub_client().topic("t").subscribe("sub", came.extend)
    first = scene.publish(b"first").result(WAIT_S).id
    wait_for(lambda: scene.cursor() == first, "it came, and its cursor is stored")
    scene.depose()
    assert scene.publish(b"second", 1).result(WAIT_S)
    assert isinstance(scene.publish(b"late").exception(WAIT_S), RedirectedError)
    assert scene.publish(b"third", 1).result(WAIT_S)
    wait_for(lambda: came[-1].value == b"third", "it goes on at the new owner")
    assert [each.value for each in came] == [b"first", b"second", b"third"]
    assert subscription.hub == scene.hubs[1].address


def test_health_says_whether_a_hub_serves_and_what_it_owns(scene: Scene) -> None:
    hub = scene.hub()
    assert scene.publish(b"v").result(WAIT_S)

    def health() -> tuple[int, dict[str, Any]]:
        status, page = hub.get("/health")
        return status, json.loads(page)

    assert health() == (200, {"status": "serving", "queues": {QUEUE: 1}})
    store: Any = hub.client.coordination.store
    store.suspend()
    wait_for(lambda: health()[0] == 503, "it says that it does not serve")
    store.resume()
    wait_for(lambda: health()[0] == 200, "it serves again")


def test_a_client_does_not_say_that_its_own_subscription_was_there_before(scene: Scene) -> None:
    scene.hub(operation_timeout_ms=1_000)
    assert scene.publish(b"v").result(WAIT_S)
    client = scene.hub_client()
    kept = scene.hosted(0).metadata.subscriptions
    with made_later(kept, "create_subscription_data") as (reached, go_on):
        with pytest.raises(hqueue.HubUnavailableError) as caught:
            client.topic("t").subscribe("sub", lambda _: None, mode=hqueue.SubscribeMode.CREATE)
        assert reached.is_set()
        assert caught.value.outcome is Outcome.UNKNOWN
        go_on.set()
    wait_for(scene.is_there, "it is made after all")


def test_of_a_subscription_that_was_made_when_its_topic_was_left_it_is_not_said_that_it_was_not(
    scene: Scene,
) -> None:
    hub, hosted = scene.hub(), scene.hosted(0)
    assert scene.publish(b"v").result(WAIT_S)
    owned = hosted.topics.serving("t")
    assert owned is not None
    delivery = Delivery(hqueue.Address("127.0.0.1", 1), "life", explicit=False)
    with made_later(hosted.metadata.subscriptions, "create_subscription_data") as (reached, go_on):
        call = hosted.subscriptions.subscribe(
            owned, Claimant("sub"), SubscribeMode.CREATE, delivery, None
        )
        subscribing = hub.submit(call)
        assert reached.wait(WAIT_S)
        hosted.topics.abandon("t").result(WAIT_S)
        go_on.set()
        error = subscribing.exception(WAIT_S)
    assert isinstance(error, StoreUnavailableError)
    assert error.outcome is Outcome.UNKNOWN
    assert scene.is_there()


class Hanging:
    """A subscriber's address that takes connections, and never answers."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        self.port = self._listener.getsockname()[1]


def test_addresses_that_hang_leave_room_for_all_others(
    scene: Scene,
) -> None:
    scene.hub(deliveries_max=4)
    caller = scene.hosted(0).subscriptions.sessions.delivering.caller

    def set_timeout(timeout_ms: int) -> None:
        caller.options = dataclasses.replace(caller.options, timeout_ms=timeout_ms)

    set_timeout(500)
    client = scene.hub_client()
    good = scene.subscriber(name="good")
    good.subscribe("t")
    for number in range(6):
        for topic in ("u", "v", "t"):
            hanging = scene.subscriber(name=f"hanging{number}")
            if topic == "u":
                port = Hanging(scene.stack).port
            hanging.port = port
            hanging.subscribe(topic)
    for topic in ("u", "v", "t"):
        client.topic(topic).publish(b"first")
    wait_for(lambda: good.values == [b"first"], "the others had their turn")
    sessions = scene.hosted(0).subscriptions.sessions
    hung = [each for each in sessions.every() if each.subscriber != "good"]
    wait_for(lambda: sum(each.tries.failures > 0 for each in hung) >= 6, "all were tried")
    # From here on a call that hangs would hang for longer than this test.
    set_timeout(10 * int(WAIT_S) * 1_000)
    sent = [b"%d" % number for number in range(100)]
    for value in sent:
        client.topic("t").publish(value)
    wait_for(lambda: good.values[1:] == sent, "who answers gets all")


def test_new_addresses_that_hang_hold_up_neither_who_answered_nor_who_comes_new(
    scene: Scene,
) -> None:
    hub = scene.hub(deliveries_max=8)
    client = scene.hub_client()
    good = scene.subscriber(name="good")
    good.subscribe("t")
    client.topic("t").publish(b"first")
    wait_for(lambda: good.values == [b"first"], "it has answered")
    hosted = scene.hosted(0)
    owned = hosted.topics.serving("t")
    assert owned is not None
    for number in range(24):
        address = hqueue.Address("127.0.0.1", Hanging(scene.stack).port)
        stranger = Delivery(address, f"life{number}", explicit=False, host="192.0.2.1")
        call = hosted.subscriptions.subscribe(
            owned, Claimant(f"hanging{number}"), SubscribeMode.CREATE, stranger, None
        )
        hub.run(call)
    # A call that hangs does so for 30 s, and so long none of these may wait.
    began_s = time.monotonic()
    sent = [b"%d" % number for number in range(20)]
    for value in sent:
        client.topic("t").publish(value)
    wait_for(lambda: good.values[1:] == sent, "who answered gets all")
    new = scene.subscriber(name="new")
    new.subscribe("t")
    client.topic("t").publish(b"last")
    wait_for(lambda: new.values == [b"last"], "who comes new has a turn")
    assert time.monotonic() - began_s < delivering.OPTIONS.timeout_ms / 2e3


def test_a_senseless_frame_ends_its_connection_and_nothing_else(scene: Scene) -> None:
    hub = scene.hub()
    client = scene.hub_client()
    client.topic("t").publish(b"before")
    for frame in (b"GET / HTTP/1.1\r\n\r\n", b"\x80\x01\x00\x01\xff\xff\xff\xff", bytes(64)):
        with socket.create_connection(hub.address, timeout=WAIT_S) as stranger:
            stranger.sendall(frame)
            with contextlib.suppress(OSError):  # It was hung up on.
                stranger.shutdown(socket.SHUT_WR)
                while stranger.recv(4_096):
                    pass
        client.topic("t").publish(b"after")
    assert len(scene.values()) == 4


def test_metrics_count_what_a_hub_did(scene: Scene) -> None:
    scene.hub()
    scene.hub()
    client = scene.hub_client()
    assert scene.publish(b"first").result(WAIT_S)
    assert isinstance(scene.publish(b"elsewhere", 1).exception(WAIT_S), RedirectedError)
    client.topic("t").publish(b"second")
    client.topic("t").subscribe("sub", lambda _: None)
    before = [_figures(scene, number) for number in range(2)]
    assert before[0]['hqueue_hub_topics{queue="q"}'] == 1
    assert before[0]['hqueue_hub_subscriptions{queue="q"}'] == 1
    assert before[0]["hqueue_hub_takeovers_total"] == 1
    assert before[0]["hqueue_hub_published_messages_total"] == 1, "what came over Thrift"
    assert before[0]["hqueue_hub_publish_latency_seconds_count"] == 1
    assert before[0]["hqueue_hub_appends_total"] == 2
    assert before[1]["hqueue_hub_redirects_total"] >= 1
    scene.depose()
    assert scene.publish(b"third", 1).result(WAIT_S)
    assert isinstance(scene.publish(b"late").exception(WAIT_S), RedirectedError)
    after = [_figures(scene, number) for number in range(2)]
    assert after[0]["hqueue_hub_fenced_topics_total"] == 1
    assert after[0]['hqueue_hub_topics{queue="q"}'] == 0
    assert after[1]['hqueue_hub_topics{queue="q"}'] == 1
    assert after[1]["hqueue_hub_takeovers_total"] == 1


def test_a_subscription_that_is_behind_shows_its_lag_until_it_is_given_all(
    scene: Scene,
) -> None:
    scene.hub(limits=HubLimits(lag_every_ms=20.0))
    client = scene.hub_client()
    takes = threading.Event()

    def listener(_: object) -> Status:
        return Status.DONE if takes.is_set() else Status.RETRY

    client.topic("t").subscribe("slow", listener)
    client.topic("u").subscribe("idle", listener)
    for value in (b"1", b"2", b"3"):
        client.topic("t").publish(value)
    labels = '{queue="q",subscriber="slow",topic="t"}'
    idle = '{queue="q",subscriber="idle",topic="u"}'

    def lags() -> tuple[float | None, float | None]:
        figures = _figures(scene, 0)
        assert figures.get(f"hqueue_hub_lag_messages{idle}", 0) == 0
        return (
            figures.get(f"hqueue_hub_lag_messages{labels}"),
            figures.get(f"hqueue_hub_lag_seconds{labels}"),
        )

    wait_for(lambda: lags()[0] == 3 and (lags()[1] or 0) > 0, "the lag is shown")
    takes.set()
    wait_for(lambda: lags() == (0, 0), "it was given all")


def _figures(scene: Scene, number: int) -> dict[str, float]:
    lines = scene.hubs[number].hub.metrics.page().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


@pytest.mark.parametrize("what", ["abandon", "delete"])
def test_a_topic_that_no_thread_is_there_to_leave_is_owned_and_served_as_before(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    scene.hub()
    scene.publish(b"1").result(WAIT_S)
    topics = scene.hosted(0).topics
    none = ThreadPool(1, "none")
    none.shutdown()
    with monkeypatch.context() as patched:
        patched.setattr(topics, "_pool", none)
        with pytest.raises(hqueue.HQueueError):
            getattr(topics, what)("t")
    scene.publish(b"2").result(WAIT_S)
    getattr(topics, what)("t").result(WAIT_S)
    assert not scene.hubs[0].owns(QUEUE)


def test_a_deletion_that_ended_by_a_fault_of_the_hub_is_not_reported_as_done(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.hub()
    scene.publish(b"1").result(WAIT_S)
    hosted = scene.hosted(0)
    topics = hosted.topics

    def fail(*_: object, **__: object) -> None:
        raise SystemExit("a fault")

    with monkeypatch.context() as patched:
        patched.setattr(hosted.subscriptions.sessions, "leave", fail)
        with pytest.raises(StoreUnavailableError, match="not deleted"):
            topics.delete("t").result(WAIT_S)
    assert scene.values() == [b"1"]
