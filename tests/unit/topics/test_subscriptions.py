"""A client's subscriptions, over hubs on stores in memory: they stay attached whatever hubs do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

import hqueue
from hqueue import (
    HubClient,
    InvalidInputError,
    MessageID,
    ReceivedMessage,
    Status,
    SubscribeMode,
    TopicSubscription,
)
from hqueue.errors import (
    ClosedError,
    HubUnavailableError,
    SubscriberConnectedError,
    SubscriberExistsError,
    SubscriberNotFoundError,
)
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.runtime import loop
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import stepwise
from hqueue.topics import stream
from hqueue.topics.delivering_hubs import DeliveringHubs
from hqueue.topics.endpoint import Endpoint
from hqueue.topics.exchanges import Exchange
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.subscribing import subscription_sessions
from hqueue_workers.hub.subscribing.subscription_session import SubscriptionSession
from tests.support.backends import MemoryBackend
from tests.support.hub_faces import both_faces
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

WAIT_S = 60.0
QUEUE = "q"


class Scene:
    """Hubs, a queue, and clients that know the hubs alone."""

    def __init__(self, stack: contextlib.ExitStack, limits: HubLimits | None = None) -> None:
        self.stack = stack
        self.limits = limits
        self.backend = MemoryBackend().apart(10_000)
        admin = stack.enter_context(self.backend.connect())
        admin.create_queue(QUEUE, partitions=2)
        self.metadata = stack.enter_context(admin.topic_metadata(QUEUE))
        self.hubs = [self.hub(), self.hub()]
        self.publisher = self.client()

    def hub(self, **settings: Any) -> HubThread:
        client = self.stack.enter_context(self.backend.connect())
        return self.stack.enter_context(
            HubThread(client, QUEUE, limits=self.limits, balance_ms=3_600_000, **settings)
        )

    def client(self, **options: Any) -> HubClient:
        hubs = ",".join(str(hub.address) for hub in self.hubs)
        return self.stack.enter_context(hqueue.connect_hubs(hubs, queue=QUEUE, **options))

    def owner(self, topic: str = "t") -> HubThread:
        (owner,) = [hub for hub in self.hubs if topic in hub.owns(QUEUE)]
        return owner

    def abandon(self, topic: str = "t") -> None:
        topics = self.owner(topic).hosted(QUEUE).topics
        topics.abandon(topic).result(WAIT_S)

    def lose(self, topic: str = "t") -> None:
        """End the session of the hub that has it: it stores nothing any more."""
        self.owner(topic).client.coordination.store.expire()  # type: ignore[attr-defined]

    def attached(self, topic: str = "t") -> list[SubscriptionSession]:
        """What a hub delivers."""
        queues = [hub.hosted(QUEUE) for hub in self.hubs]
        found = [queue.subscriptions.sessions.find(topic, "sub") for queue in queues]
        return [each for each in found if each is not None]

    def cursor(self, topic: str = "t") -> MessageID | None:
        found = self.metadata.subscriptions.read_subscription_data(topic, "sub").result(WAIT_S)
        if found is None:
            return None
        assert found.value.state is not None
        return found.value.state.consumed


@pytest.fixture
def limits() -> HubLimits:
    """The hubs' bounds."""
    return HubLimits()


@pytest.fixture
def scene(limits: HubLimits) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack, limits)


seldom_stored = pytest.mark.parametrize("limits", [HubLimits(store_every_ms=3_600_000.0)], ids=[""])
"""No cursor is stored soon after it moved."""


class Taking:
    """A listener that takes what it gets."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []

    def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
        self.messages.extend(messages)

    @property
    def values(self) -> list[bytes]:
        return [each.value for each in self.messages]


@both_faces
def test_what_is_published_after_it_comes_in_order_and_goes_on_at_the_cursor(scene: Scene) -> None:
    first, second = Taking(), Taking()
    scene.publisher.topic("t").publish(b"before")
    with scene.client().topic("t").subscribe("sub", first) as subscription:
        values = [b"%d" % number for number in range(50)]
        last = [scene.publisher.topic("t").publish(value) for value in values][-1]
        wait_for(lambda: first.values == values, "all came, in order")
        assert not subscription.ended
    assert subscription.ended
    assert subscription.wait(0)
    assert scene.cursor() == last, "it is stored when it is closed"
    later = scene.publisher.topic("t").publish(b"later")
    again = scene.client().topic("t").subscribe("sub", second, mode=SubscribeMode.ATTACH)
    assert again.cursor == last
    wait_for(lambda: second.values == [b"later"], "what came meanwhile")
    wait_for(lambda: scene.cursor() == later, "its cursor is stored")


@both_faces
def test_a_listener_that_returns_no_status_has_failed_and_gets_its_messages_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    taking = Taking()

    def listener(messages: Sequence[ReceivedMessage]) -> Any:
        taking(messages)
        return "nonsense" if len(taking.messages) == 1 else None

    with scene.client().topic("t").subscribe("sub", listener):
        scene.publisher.topic("t").publish(b"value")
        wait_for(lambda: taking.values == [b"value"] * 2, "it came again")
    assert "a listener of subscriber 'sub' of topic 't' failed" in caplog.text
    assert "must return a Status, a DeliveryAnswer or None" in caplog.text
    assert "closed the connection" not in caplog.text


@both_faces
def test_it_follows_its_topic_from_hub_to_hub_by_itself(scene: Scene) -> None:
    taking = Taking()
    with scene.client().topic("t").subscribe("sub", taking):
        sent: list[bytes] = []
        for round_ in range(4):
            for number in range(10):
                sent.append(b"%d-%d" % (round_, number))
                scene.publisher.topic("t").publish(sent[-1])
            wait_for(lambda: taking.values == sent, "none is lost, none doubled, in order")
            scene.abandon()


@both_faces
def test_it_goes_on_when_its_hub_ends(scene: Scene) -> None:
    taking = Taking()
    subscription = scene.client().topic("t").subscribe("sub", taking)
    scene.publisher.topic("t").publish(b"a")
    wait_for(lambda: taking.values == [b"a"], "it came")
    scene.owner().terminate()
    scene.publisher.topic("t").publish(b"b")
    wait_for(lambda: taking.values == [b"a", b"b"], "the other hub delivers")
    assert subscription.hub in {hub.address for hub in scene.hubs}


@pytest.mark.parametrize("heard", [True, False], ids=["reported", "its report was lost"])
@pytest.mark.parametrize("answered", [True, False], ids=["after its answer", "before its answer"])
def test_one_that_is_detached_as_soon_as_it_is_attached_is_attached_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, heard: bool, answered: bool
) -> None:
    scene.hubs.pop().terminate()
    client, taking = scene.client(), Taking()
    hubs, connections = client._subscriptions.hubs, client._calls._connections
    exchange, tell = connections.exchange, hubs._ask_detached
    told: list[Any] = []
    taken_in = threading.Event()

    def lose() -> None:
        scene.abandon("t")
        assert taken_in.wait(WAIT_S)

    def subscribing(call: Exchange) -> Any:
        answer = exchange(call)
        is_wanted = call.method.name == "subscribe" and call.method.arguments[2] == "t"
        if is_wanted and not answered and not told:
            lose()
        return answer

    async def telling(*given: Any) -> list[Any] | None:
        if told:  # So the report is taken in.
            taken_in.set()
        found = await tell(*given)
        assert found is not None
        told.extend(found)
        return found if heard or not found else None

    monkeypatch.setattr(connections, "exchange", subscribing)
    monkeypatch.setattr(hubs, "_ask_detached", telling)
    client.topic("other").subscribe("sub", Taking())  # So that the hub is attended.
    client.topic("t").subscribe("sub", taking)
    if answered:
        lose()
    scene.publisher.topic("t").publish(b"a")
    wait_for(lambda: taking.values == [b"a"], "it is attached again")


@both_faces
def test_one_that_another_client_takes_over_ends_and_says_so(scene: Scene) -> None:
    first, second = Taking(), Taking()
    subscription = scene.client().topic("t").subscribe("sub", first)
    scene.client().topic("t").subscribe("sub", second)
    with pytest.raises(SubscriberConnectedError):
        subscription.wait(WAIT_S)
    scene.publisher.topic("t").publish(b"a")
    wait_for(lambda: second.values == [b"a"], "it comes to the other")
    assert first.values == []


@both_faces
def test_modes_and_unsubscribing(scene: Scene) -> None:
    client, taking = scene.client(), Taking()
    with pytest.raises(SubscriberNotFoundError):
        client.topic("t").subscribe("sub", taking, mode=SubscribeMode.ATTACH)
    with pytest.raises(SubscriberNotFoundError):
        client.topic("t").unsubscribe("sub")
    preferences = SubscriptionPreferences(message_bound=5, application={"a": "b"})
    subscription = client.topic("t").subscribe(
        "sub", taking, mode=SubscribeMode.CREATE, preferences=preferences
    )
    assert subscription.preferences == preferences
    with pytest.raises(InvalidInputError):
        client.topic("t").subscribe("sub", taking)
    with pytest.raises(SubscriberExistsError):
        scene.client().topic("t").subscribe("sub", taking, mode=SubscribeMode.CREATE)
    scene.client().topic("t").unsubscribe("sub")
    with pytest.raises(SubscriberNotFoundError):
        subscription.wait(WAIT_S)
    again = client.topic("t").subscribe("sub", taking)
    again.unsubscribe()
    assert again.wait(0)
    assert scene.cursor() is None


@both_faces
def test_what_a_listener_fails_at_comes_again(scene: Scene) -> None:
    taken: list[bytes] = []
    failing = iter([True])

    def listener(messages: Sequence[ReceivedMessage]) -> Status:
        if next(failing, False):
            raise ValueError("not now")
        taken.extend(each.value for each in messages)
        return Status.DONE

    with scene.client().topic("t").subscribe("sub", listener):
        scene.publisher.topic("t").publish(b"a")
        wait_for(lambda: taken == [b"a"], "it came again")


@both_faces
def test_an_explicit_ack_moves_the_cursor(scene: Scene) -> None:
    taking = Taking()
    client = scene.client()
    subscription = client.topic("t").subscribe("sub", taking, explicit_ack=True)
    before = scene.cursor()
    ids = scene.publisher.topic("t").publish_many([b"a", b"b", b"c"])
    wait_for(lambda: taking.values == [b"a", b"b", b"c"], "they came")
    assert scene.cursor() == before
    scene.abandon()
    subscription.acknowledge_cumulative(ids[1])
    subscription.close()
    # It may be closed while it is attached again: then the cursor is stored a little later.
    wait_for(lambda: scene.cursor() == ids[1], "its cursor is stored")
    again = Taking()
    implicit = client.topic("t").subscribe("sub", again)
    wait_for(lambda: again.values == [b"c"], "what was not consumed")
    with pytest.raises(InvalidInputError):
        implicit.acknowledge_cumulative(ids[2])


@both_faces
def test_one_name_has_many_topics_on_one_port(scene: Scene) -> None:
    client = scene.client()
    listeners = {f"t{number}": Taking() for number in range(20)}
    made = [client.topic(topic).subscribe("sub", taking) for topic, taking in listeners.items()]
    assert len({each.endpoint for each in made}) == 1
    for topic in listeners:
        scene.publisher.topic(topic).publish(topic.encode())
    for topic, taking in listeners.items():
        wait_for(lambda t=taking, v=topic: t.values == [v.encode()], "it came")  # type: ignore[misc]


def servers() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("hqueue-server")}


def test_a_name_listens_for_as_long_as_it_has_topics(scene: Scene) -> None:
    client, taking = scene.client(), Taking()
    before = servers()
    first = client.topic("t").subscribe("first", Taking())
    other = client.topic("u").subscribe("first", taking)
    first.close()
    scene.publisher.topic("u").publish(b"a")
    wait_for(lambda: taking.values == [b"a"], "one topic is left")
    assert servers() > before
    other.close()
    wait_for(lambda: servers() <= before, "it leaves no thread")
    with pytest.raises(SubscriberNotFoundError):
        client.topic("u").subscribe(
            "sub", taking, mode=SubscribeMode.ATTACH, port=first.endpoint.port
        )
    taken = client.topic("u").subscribe("sub", taking, port=first.endpoint.port)
    assert taken.endpoint == first.endpoint, "the port is free again"
    scene.client().topic("u").subscribe("sub", Taking())
    with pytest.raises(SubscriberConnectedError):
        taken.wait(WAIT_S)
    again = client.topic("u").subscribe("sub", taking, port=first.endpoint.port)
    scene.publisher.topic("u").publish(b"b")
    wait_for(lambda: taking.values == [b"a", b"b"], "it listens there again")
    assert not again.ended


def within(kind: str, work: Callable[[], object]) -> Callable[[], Any]:
    """A listener's work: in a plain one, in a coroutine, or in a thread that a coroutine awaits."""

    async def in_coroutine() -> None:
        work()

    async def in_its_thread() -> None:
        await asyncio.to_thread(work)

    return {"plain": work, "coroutine": in_coroutine, "thread": in_its_thread}[kind]


ENDINGS: dict[str, Callable[[HubClient, TopicSubscription], object]] = {
    "close": lambda client, subscription: subscription.close(),
    "unsubscribe": lambda client, subscription: subscription.unsubscribe(),
    "unsubscribe of the client": lambda client, subscription: client.topic("t").unsubscribe("sub"),
    "close and unsubscribe": lambda client, subscription: (
        subscription.close(),
        subscription.unsubscribe(),
        subscription.close(),
    ),
    "close of the client": lambda client, subscription: (
        client.close(),
        subscription.close(),
        client.close(),
    ),
}


@pytest.mark.parametrize("kind", ["plain", "coroutine", "thread"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_listener_that_ends_its_own_subscription_goes_on_at_once_and_its_answer_counts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, ending: str, kind: str
) -> None:
    # A call that waits for itself waits long.
    monkeypatch.setattr(subscription_sessions, "GRACE_S", WAIT_S)
    client, got = scene.client(), Taking()
    before = servers()
    begun, ended, go_on = threading.Event(), threading.Event(), threading.Event()

    def end() -> None:
        assert begun.wait(WAIT_S)
        ENDINGS[ending](client, subscription)
        ended.set()
        assert go_on.wait(WAIT_S)

    work = within(kind, end)

    def listener(messages: Sequence[ReceivedMessage]) -> Any:
        got(messages)
        return work()

    async def async_listener(messages: Sequence[ReceivedMessage]) -> None:
        await listener(messages)

    given = listener if kind == "plain" else async_listener
    subscription = client.topic("t").subscribe("sub", given)
    begun.set()
    first = scene.publisher.topic("t").publish(b"a")
    assert ended.wait(WAIT_S / 4), "it does not wait for itself"
    scene.publisher.topic("t").publish(b"b")
    ends = threading.Thread(target=subscription.close)  # As a program does that saw that it ended.
    ends.start()
    ends.join(0.2)
    go_on.set()
    ends.join(WAIT_S / 4)
    assert not ends.is_alive()
    assert subscription.ended
    assert got.values == [b"a"], "nothing more comes"
    if "unsubscribe" in ending:
        wait_for(lambda: scene.cursor() is None, "it is gone")
    else:
        wait_for(lambda: scene.cursor() == first, "what was answered counts")
        again = Taking()
        with scene.client().topic("t").subscribe("sub", again):
            wait_for(lambda: again.values == [b"b"], "the others come when it is attached again")
    wait_for(lambda: servers() <= before, "it leaves no thread")


def test_that_a_listener_could_not_unsubscribe_is_logged(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    client = scene.client()
    begun = threading.Event()

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        assert begun.wait(WAIT_S)
        subscription.unsubscribe()
        scene.publisher.topic("t").unsubscribe("sub")  # Another client is before it.

    subscription = client.topic("t").subscribe("sub", listener)
    begun.set()
    scene.publisher.topic("t").publish(b"a")
    text = "a subscription to 't' was not ended, though its listener asked for it"
    wait_for(lambda: text in caplog.text, "it is said")


def test_a_client_that_is_closed_stores_cursors_and_leaves_no_thread(scene: Scene) -> None:
    before = set(threading.enumerate())
    hubs = ",".join(str(hub.address) for hub in scene.hubs)
    taking = Taking()
    with hqueue.connect_hubs(hubs, queue=QUEUE) as client:
        subscription = client.topic("t").subscribe("sub", taking)
        last = scene.publisher.topic("t").publish(b"a")
        wait_for(lambda: taking.values == [b"a"], "it came")
    assert subscription.ended
    assert scene.cursor() == last
    wait_for(
        lambda: (
            not any(
                each.name.startswith(("hqueue-subscribe", "hqueue-server", "hqueue-listeners"))
                for each in set(threading.enumerate()) - before
            )
        ),
        "no thread is left",
    )
    with pytest.raises(ClosedError):
        client.topic("t").subscribe("sub", taking)


def test_a_close_that_is_interrupted_closes_the_other_ports_when_it_is_called_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, client = servers(), scene.client()
    for name in ("sub", "other", "third"):
        client.topic("t").subscribe(name, Taking())
    close, interrupted = Endpoint.close, iter([True])

    def close_or_not(endpoint: Endpoint, drain_ms: float) -> None:
        if next(interrupted, False):
            raise KeyboardInterrupt
        close(endpoint, drain_ms)

    monkeypatch.setattr(Endpoint, "close", close_or_not)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    client.close()
    wait_for(lambda: servers() <= before, "it leaves no thread")


@both_faces
def test_bad_input_is_refused_before_anything_is_called() -> None:
    taking = Taking()
    with hqueue.connect_hubs("127.0.0.1:1", queue=QUEUE, operation_timeout_ms=100) as client:
        with pytest.raises(InvalidInputError):
            client.topic("")
        subscribe: Any = client.topic("t").subscribe
        for given, options in (
            (("", taking), {}),
            (("sub", None), {}),
            (("sub", taking), {"mode": 7}),
            (("sub", taking), {"preferences": {}}),
            (("sub", taking), {"host": "256.0.0.1"}),
            (("sub", taking), {"port": 70_000}),
        ):
            with pytest.raises(InvalidInputError):
                subscribe(*given, **options)
        with pytest.raises(HubUnavailableError):
            client.topic("t").subscribe("sub", taking)


@both_faces
def test_an_iterator_consumes_what_was_gone_on_from(scene: Scene) -> None:
    client = scene.client()
    created = client.topic("t").subscribe("sub", Taking())
    created.close()
    ids = scene.publisher.topic("t").publish_many([b"%d" % number for number in range(10)])

    async def take(count: int) -> list[bytes]:
        taken: list[bytes] = []
        async with contextlib.aclosing(client.topic("t").messages("sub")) as messages:
            async for message in messages:
                taken.append(message.value)
                if len(taken) == count:
                    break
        return taken

    assert asyncio.run(take(4)) == [b"0", b"1", b"2", b"3"]
    assert scene.cursor() == ids[2], "the one that it was left at is not consumed"
    assert asyncio.run(take(7)) == [b"%d" % number for number in range(3, 10)]


@both_faces
def test_an_iterator_goes_on_over_moves_and_ends_when_it_is_taken_over(scene: Scene) -> None:
    client = scene.client()
    taken: list[bytes] = []
    ended: list[BaseException] = []

    async def take() -> None:
        stream = client.topic("t").messages(
            "sub", preferences=SubscriptionPreferences(delivery_window=4)
        )
        async with contextlib.aclosing(stream) as messages:
            async for message in messages:
                taken.append(message.value)

    def run() -> None:
        try:
            asyncio.run(take())
        except BaseException as exc:
            ended.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: scene.cursor() is not None, "it has subscribed")
    sent = []
    for number in range(30):
        sent.append(b"%d" % number)
        scene.publisher.topic("t").publish(sent[-1])
        if number % 10 == 9:
            wait_for(lambda: taken == sent, "none is lost, none doubled, in order")
            scene.abandon()
    # Attached again: of two that attach at the same time the later one has it.
    scene.publisher.topic("t").publish(b"last")
    wait_for(lambda: taken[-1] == b"last", "it is attached where the topic is now")
    other: TopicSubscription = scene.client().topic("t").subscribe("sub", Taking())
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert isinstance(ended[0], SubscriberConnectedError)
    assert not other.ended


@both_faces
@seldom_stored
def test_an_iterator_says_again_what_is_consumed_when_a_hub_lost_that(
    scene: Scene,
) -> None:
    client = scene.client()
    client.topic("t").subscribe("sub", Taking()).close()
    ids = scene.publisher.topic("t").publish_many([b"0", b"1"])
    preferences = SubscriptionPreferences(delivery_window=2)

    async def take() -> None:
        stream = client.topic("t").messages("sub", preferences=preferences)
        async with contextlib.aclosing(stream) as messages:
            assert [(await anext(messages)).id for _ in ids] == ids
            following = asyncio.ensure_future(anext(messages))
            (said,) = scene.attached()
            await asyncio.to_thread(wait_for, lambda: said.consumed == int(ids[1]), "it is said")
            scene.lose()
            await asyncio.to_thread(scene.publisher.topic("t").publish, b"2")
            assert (await asyncio.wait_for(following, WAIT_S)).value == b"2"

    asyncio.run(take())
    assert scene.cursor() == ids[1]


@both_faces
@seldom_stored
def test_an_iterator_that_is_left_says_again_what_is_consumed_when_a_hub_lost_that(
    scene: Scene,
) -> None:
    client = scene.client()
    client.topic("t").subscribe("sub", Taking()).close()
    ids = scene.publisher.topic("t").publish_many([b"0", b"1"])
    preferences = SubscriptionPreferences(delivery_window=2)

    async def take() -> None:
        stream = client.topic("t").messages("sub", preferences=preferences)
        async with contextlib.aclosing(stream) as messages:
            assert [(await anext(messages)).id for _ in ids] == ids
            (said,) = scene.attached()
            assert said.consumed == int(ids[0])
            scene.lose()
            await asyncio.to_thread(
                wait_for,
                lambda: any(
                    each.position > int(ids[1]) for each in scene.attached() if each != said
                ),
                "they came again",
            )

    asyncio.run(take())
    assert scene.cursor() == ids[0]


@both_faces
def test_a_hub_that_ends_does_not_wait_for_what_a_client_asked_that_has_left(scene: Scene) -> None:
    client = scene.client()
    client.topic("t").subscribe("sub", Taking())
    owner = scene.owner()
    waits = owner.hosted(QUEUE).subscriptions._client_sessions._waits
    wait_for(lambda: waits.total() > 0, "it waits to learn what is detached")
    client.close()
    began_s = time.monotonic()
    owner.terminate()
    assert time.monotonic() - began_s < 5


class SlowAttaching:
    """Hubs that take their time over a `subscribe`; an iterator that is left waits for them as long
    as it says.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, leaving_s: float = stream.LEAVING_S
    ) -> None:
        self.begun = threading.Semaphore(0)
        self.going_on = threading.Event()
        attach = DeliveringHubs.__dict__["attach"]

        @stepwise
        def slow(hubs: DeliveringHubs, *args: Any, **named: Any) -> Work[Any, None]:
            self.begun.release()
            assert (yield Wait(partial(self.going_on.wait, WAIT_S), self._in_loop))
            yield from attach.__get__(hubs, None).steps(*args, **named)

        monkeypatch.setattr(DeliveringHubs, "attach", slow)
        monkeypatch.setattr(stream, "LEAVING_S", leaving_s)

    async def _in_loop(self) -> bool:
        while not self.going_on.is_set():
            await asyncio.sleep(0.001)
        return True

    async def begin(self, client: HubClient, topics: int) -> list[asyncio.Future[Any]]:
        """Iterators that subscribe to so many topics."""
        streams = [client.topic(f"t{number}").messages("sub") for number in range(topics)]
        following = [asyncio.ensure_future(anext(stream)) for stream in streams]
        for _ in following:
            assert await asyncio.to_thread(self.begun.acquire, timeout=WAIT_S)
        return following


def test_an_iterator_that_is_cancelled_while_it_subscribes_leaves_no_subscription(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, hubs = scene.client(), SlowAttaching(monkeypatch)

    async def give_up() -> None:
        (following,) = await hubs.begin(client, 1)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following

    asyncio.run(give_up())
    hubs.going_on.set()
    wait_for(lambda: scene.cursor("t0") is not None, "it has subscribed, late")
    wait_for(lambda: not scene.attached("t0"), "it is detached")
    wait_for(lambda: not client.subscriptions, "its name is free")
    client.topic("t0").subscribe("sub", Taking()).close()


@both_faces
def test_an_iterator_is_closed_when_it_was_cancelled_while_it_subscribed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, hubs = scene.client(), SlowAttaching(monkeypatch)

    async def give_up() -> None:
        (following,) = await hubs.begin(client, 1)
        following.cancel()
        asyncio.get_running_loop().call_later(0.2, hubs.going_on.set)
        with pytest.raises(asyncio.CancelledError):
            await following
        assert hubs.going_on.is_set()
        assert not client.subscriptions
        assert not scene.attached("t0")

    asyncio.run(give_up())


@both_faces
def test_a_subscribe_waits_for_an_iterator_that_was_left_while_it_subscribed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, hubs = scene.client(), SlowAttaching(monkeypatch, leaving_s=0.0)

    async def give_up() -> None:
        (following,) = await hubs.begin(client, 1)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        assert client.subscriptions, "it still subscribes"
        again = asyncio.ensure_future(anext(client.topic("t0").messages("sub")))
        await asyncio.sleep(0.2)
        assert not again.done()
        hubs.going_on.set()
        await asyncio.to_thread(wait_for, lambda: scene.attached("t0"), "it is attached")
        await asyncio.to_thread(scene.publisher.topic("t0").publish, b"value")
        assert (await asyncio.wait_for(again, WAIT_S)).value == b"value"

    asyncio.run(give_up())


def test_a_subscribe_waits_for_a_subscription_that_its_listener_closed(scene: Scene) -> None:
    client = scene.client()
    going_on, subscriptions_made = threading.Event(), []

    def close(messages: Sequence[ReceivedMessage]) -> None:
        subscriptions_made[0].close()
        assert going_on.wait(WAIT_S)

    subscription = client.topic("t").subscribe("sub", close)
    subscriptions_made.append(subscription)
    scene.publisher.topic("t").publish(b"value")
    assert subscription.wait(WAIT_S)
    timer = threading.Timer(0.2, going_on.set)
    timer.start()
    with client.topic("t").subscribe("sub", Taking()):
        assert going_on.is_set()


@both_faces
def test_a_subscribe_waits_no_longer_than_an_operation_for_a_subscription_that_ends(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = scene.client(operation_timeout_ms=300)
    hubs = SlowAttaching(monkeypatch, leaving_s=0.0)

    async def give_up() -> None:
        (following,) = await hubs.begin(client, 1)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        with pytest.raises(InvalidInputError, match="subscribed to the topic under this name"):
            await asyncio.wait_for(anext(client.topic("t0").messages("sub")), WAIT_S)

    try:
        asyncio.run(give_up())
    finally:
        hubs.going_on.set()
    wait_for(lambda: not client.subscriptions, "it is left")


@both_faces
def test_an_iterator_that_is_cancelled_twice_while_it_subscribes_ends_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, hubs = scene.client(), SlowAttaching(monkeypatch, leaving_s=WAIT_S)

    async def give_up() -> None:
        (following,) = await hubs.begin(client, 1)
        following.cancel()
        await asyncio.sleep(0.05)
        assert not following.done(), "it waits until it has subscribed"
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(following, WAIT_S / 10)

    try:
        asyncio.run(give_up())
    finally:
        hubs.going_on.set()
    wait_for(lambda: not client.subscriptions, "it is left")
    assert not scene.attached("t0")


@both_faces
def test_iterators_that_wait_for_hubs_leave_others_the_threads_of_the_process(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, hubs = scene.client(), SlowAttaching(monkeypatch)

    async def ask_beside() -> None:
        following = await hubs.begin(client, loop.BLOCKING_MAX)
        try:
            assert await asyncio.wait_for(loop.in_thread(lambda: 1), WAIT_S / 10) == 1
        finally:
            hubs.going_on.set()
            for each in following:
                each.cancel()
            await asyncio.wait(following)

    asyncio.run(ask_beside())
    wait_for(lambda: not client.subscriptions, "all are left")


@both_faces
def test_errors_of_subscriptions_that_are_or_are_not_there_name_the_subscriber(
    scene: Scene,
) -> None:
    topic = scene.client().topic("t")
    for call in (
        lambda: topic.unsubscribe("sub"),
        lambda: topic.subscribe("sub", lambda messages: None, mode=SubscribeMode.ATTACH),
    ):
        with pytest.raises(SubscriberNotFoundError) as missing:
            call()
        assert missing.value.subscriber == "sub"
        assert "subscriber='sub'" in str(missing.value)
    topic.subscribe("sub", lambda messages: None).close()
    with pytest.raises(SubscriberExistsError) as there:
        topic.subscribe("sub", lambda messages: None, mode=SubscribeMode.CREATE)
    assert there.value.subscriber == "sub"


@both_faces
def test_hubs_whose_names_are_not_known_are_named_at_once(
    hub_face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with (
        hqueue.connect_hubs("one.invalid:1,two.invalid:2", queue="q") as client,
        pytest.raises(InvalidInputError) as refused,
    ):
        client.topic("t").subscribe("s", print)
    assert refused.value.facts["hubs"] == ["one.invalid:1", "two.invalid:2"]
    assert "not known" in str(refused.value.facts["reason"])
