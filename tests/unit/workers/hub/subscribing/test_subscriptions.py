"""What subscribers of a hub get, and what becomes of their cursors: on stores in memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import hqueue
from hqueue import (
    DeliveryAnswer,
    Message,
    MessageID,
    Outcome,
    ReceivedMessage,
    Status,
    StoreUnavailableError,
)
from hqueue.consume.topic_cursor import TopicCursor
from hqueue.consume.topic_past import TopicPast
from hqueue.log.steps import Work
from hqueue.metadata.ports import Version
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue.runtime.clock import Deadline
from hqueue_workers.hub.limits import HubLimits
from hqueue_workers.hub.owning.queue_topics import QueueTopics
from hqueue_workers.hub.serving.callers import Named
from hqueue_workers.hub.subscribing.subscription_records import SubscriptionRecords
from hqueue_workers.hub.subscribing.subscription_session import Claimant
from hqueue_workers.hub.writing.owned_topic import OwnedTopic
from tests.support.backends import MemoryBackend
from tests.support.hub_subscribers import IDL, Subscriber
from tests.support.hubs import HubThread
from tests.support.stopping import stopped_at
from tests.support.waiting import wait_for

WAIT_S = 60.0
QUEUE = "q"
NEVER_STORED = HubLimits(store_every_ms=3_600_000)
"""Cursors are stored when their subscription is detached, and not before."""


class Scene:
    """Hubs, a queue, and subscribers."""

    def __init__(self, stack: contextlib.ExitStack, store: str) -> None:
        self.stack = stack
        self.backend = MemoryBackend().apart(10_000)
        self.store = store
        self.client = stack.enter_context(self.backend.connect(metadata_store=store))
        self.client.create_queue(QUEUE, partitions=2)
        self.metadata = stack.enter_context(self.client.topic_metadata(QUEUE))
        self.hubs: list[HubThread] = []

    def hub(self, limits: HubLimits | None = None, **settings: object) -> HubThread:
        client = self.stack.enter_context(self.backend.connect(metadata_store=self.store))
        given: dict[str, Any] = {"balance_ms": 3_600_000, **settings}
        self.hubs.append(self.stack.enter_context(HubThread(client, QUEUE, limits=limits, **given)))
        return self.hubs[-1]

    def subscriber(self, **named: Any) -> Subscriber:
        made = Subscriber(QUEUE, lambda: [hub.address for hub in self.hubs], **named)
        return self.stack.enter_context(made)

    def topics(self, number: int = 0) -> QueueTopics:
        return self.hubs[number].hosted(QUEUE).topics

    def publish(self, *values: bytes, number: int = 0, topic: str = "t") -> MessageID:
        """Publish at a hub; the last message's ID."""
        publishing = self.hubs[number].hosted(QUEUE).publishing
        for value in values:
            messages = [Message(topic, value)]
            done = publishing.publish(
                Named(None, "me"), topic, messages, len(value), redirected=True
            )
            last = done.result(WAIT_S).id
        return last

    def cursor(self) -> MessageID | None:
        """As it is stored."""
        found = self.metadata.subscriptions.read_subscription_data("t", "sub").result(WAIT_S)
        if found is None:
            return None
        assert found.value.state is not None
        return found.value.state.consumed

    def unanswered(self) -> UnansweredCalls | None:
        """The calls without an answer that are stored."""
        found = self.metadata.subscriptions.read_subscription_data("t", "sub").result(WAIT_S)
        assert found is not None
        assert found.value.state is not None
        return found.value.state.unanswered

    def counted(self, name: str) -> float:
        """How many messages were."""
        return self.hubs[0].counted(f"hqueue_hub_{name}_total")


@pytest.fixture(params=["zookeeper", "hbase"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack, request.param)


def test_a_new_subscription_gets_what_is_published_after_it_and_its_cursor_is_stored(
    scene: Scene,
) -> None:
    scene.hub()
    scene.publish(b"before")
    sub = scene.subscriber()
    found = sub.subscribe("t", 0, consumeInterval=3, application={"a": "b"})
    assert found.created
    assert (found.preferences.consumeInterval, found.preferences.application) == (3, {"a": "b"})
    assert found.sessionMs == 60_000
    values = [b"%d" % number for number in range(20)]
    last = scene.publish(*values)
    wait_for(lambda: sub.values == values, "all came, in order")
    wait_for(lambda: scene.cursor() == last, "its cursor is stored")
    assert scene.counted("delivered_messages") == 20


def test_what_is_published_while_it_is_asked_if_anything_was_missed_is_not_passed_by(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.hub()
    sub = scene.subscriber()
    sub.subscribe("t", 0, attach=False)
    for number in range(8):  # In both partitions, so that where it stands is not where it begins.
        scene.publish(b"other", topic=f"other{number}")
    may_have, attached = TopicPast.may_have, scene.hubs[0].hosted(QUEUE).subscriptions
    asked: list[bool] = []

    def ask(past: TopicPast, *given: Any) -> bool:
        found = may_have(past, *given)
        asked.append(found)
        subscription = attached.sessions.find("t", "sub")
        assert subscription is not None
        subscribed = subscription.topic
        before = subscribed.end
        scene.publish(b"meanwhile")
        wait_for(lambda: subscribed.end > before, "it is known")
        return found

    monkeypatch.setattr(TopicPast, "may_have", ask)
    sub.subscribe("t", 1)
    wait_for(lambda: asked, "it is asked")
    scene.publish(b"after")
    wait_for(lambda: sub.values == [b"meanwhile", b"after"], "all came")
    assert asked == [False]


def test_modes_say_what_may_be_there_already(scene: Scene) -> None:
    scene.hub()
    sub = scene.subscriber()
    with pytest.raises(IDL.TNoSuchSubscription):
        sub.subscribe("t", 1)
    assert scene.hubs[0].owns(QUEUE) == set(), "no topic was created for that"
    assert sub.subscribe("t", 0).created
    with pytest.raises(IDL.TSubscriptionExists):
        sub.subscribe("t", 0)
    assert not sub.subscribe("t", 1).created
    assert not sub.subscribe("t", 2).created


def test_a_closed_subscription_goes_on_at_its_cursor_when_it_is_attached_again(
    scene: Scene,
) -> None:
    scene.hub()
    sub = scene.subscriber()
    sub.subscribe("t")
    last = scene.publish(b"a", b"b")
    wait_for(lambda: sub.values == [b"a", b"b"], "they came")
    sub.close_subscription("t")
    assert scene.cursor() == last, "it is stored on return"
    with pytest.raises(IDL.TNoSuchSubscription):
        sub.close_subscription("t")
    later = scene.publish(b"c", b"d")
    again = scene.subscriber(session="life2")
    found = again.subscribe("t", 1)
    assert (found.consumed.timestamp, found.consumed.sequenceID) == (last.timestamp, last.sequence)
    wait_for(lambda: again.values == [b"c", b"d"], "what came meanwhile")
    wait_for(lambda: scene.cursor() == later, "its cursor is stored")
    assert sub.values == [b"a", b"b"]


def test_what_is_to_be_retried_comes_again_and_what_is_rejected_is_a_dead_letter(
    scene: Scene,
) -> None:
    scene.hub()
    answers = iter([Status.RETRY, Status.DONE, Status.DEAD_LETTER])
    sub = scene.subscriber(answer=lambda _: next(answers, Status.DONE))
    sub.subscribe("t")
    for value in (b"a", b"b", b"c"):
        last = scene.publish(value)
        wait_for(lambda at=last: scene.cursor() == at, "it is done with")  # type: ignore[misc]
    assert sub.calls == [[b"a"], [b"a"], [b"b"], [b"c"]]
    letters = list(scene.client.queue(QUEUE).dead_letters.waiting("sub"))
    assert [each.message.value for each in letters] == [b"b"]
    names = ("retried_messages", "dead_letters", "delivered_messages")
    assert [scene.counted(name) for name in names] == [1, 1, 2]


@pytest.mark.parametrize("explicit", [False, True])
def test_an_answer_for_each_message_is_one_for_no_other(scene: Scene, explicit: bool) -> None:
    scene.hub()
    published = threading.Event()

    def answer(messages: Sequence[ReceivedMessage]) -> DeliveryAnswer:
        assert published.wait(30), "the others come in one call"
        found = DeliveryAnswer()
        for message in messages:
            if message.value in (b"b", b"f"):
                found.reject(message, "bad")
            elif message.value == b"d" and len(sub.calls) < 4:
                return found.retry_from(message, delay_ms=5)
        return found

    sub = scene.subscriber(answer=answer)
    sub.subscribe("t", explicit=explicit, deliveryWindow=8)
    scene.publish(b"first")
    wait_for(lambda: sub.calls, "the first came")
    last = scene.publish(*(value.encode() for value in "abcdef"))
    published.set()
    wait_for(lambda: len(letters_of(scene)) == 2, "what is rejected lies there")
    assert sub.calls[1:] == [[b"a", b"b", b"c", b"d", b"e", b"f"], *[[b"d", b"e", b"f"]] * 2]
    assert letters_of(scene) == [
        (value, "rejected by the subscriber: bad") for value in (b"b", b"f")
    ]
    if explicit:  # Only those count for the window that the subscriber must acknowledge.
        values = [b"%d" % number for number in range(5)]
        scene.publish(*values)
        wait_for(lambda: given(sub)[13:] == values[:3], "the window is full")
        sub.consume("t", last)
        wait_for(lambda: given(sub)[13:] == values, "there is room")
    wait_for(lambda: scene.cursor() == last, "the cursor is stored")
    names = ("retried_messages", "rejected_messages", "dead_letters", "delivered_messages")
    assert [scene.counted(name) for name in names] == [6, 2, 2, 10 if explicit else 5]


def test_a_message_whose_calls_break_is_found_and_the_count_outlives_its_hub(scene: Scene) -> None:
    breaks: list[list[bytes]] = []

    def is_fatal(messages: Sequence[ReceivedMessage]) -> bool:
        values = [each.value for each in messages]
        if b"fatal" in values:
            breaks.append(values)
        return b"fatal" in values

    scene.hub()
    sub = scene.subscriber(is_fatal=is_fatal)
    sub.subscribe("t", unansweredCallsMax=2)
    values = [b"a", b"b", b"fatal", b"c"]
    first = scene.publish(b"first")
    wait_for(lambda: scene.cursor() == first, "the cursor is stored")
    sub.close_subscription("t")
    last = scene.publish(*values)
    sub.subscribe("t", 1)
    wait_for(lambda: breaks and scene.unanswered(), "the count is stored")
    scene.hub()
    scene.hubs[0].hosted(QUEUE).topics.abandon("t").result(30)
    sub.subscribe("t", 1, at=scene.hubs[1].address)
    wait_for(lambda: scene.cursor() == last, "all are done with")
    assert sub.values == [b"first", b"a", b"b", b"c"]
    assert letters_of(scene) == [
        (b"fatal", "the subscriber did not answer 2 calls with this message alone")
    ]
    assert breaks[-2:] == [[b"fatal"]] * 2
    assert len(breaks) <= 6
    assert scene.unanswered() is None


def given(sub: Subscriber) -> list[bytes]:
    return [value for call in sub.calls for value in call]


def letters_of(scene: Scene) -> list[tuple[bytes, str]]:
    found = scene.client.queue(QUEUE).dead_letters.waiting("sub")
    return [(each.message.value, each.reason) for each in found]


def test_no_more_than_the_consume_interval_is_delivered_behind_the_stored_cursor(
    scene: Scene,
) -> None:
    scene.hub()
    behind: list[int] = []

    def answer(messages: Sequence[ReceivedMessage]) -> Status:
        stored = scene.cursor()
        assert stored is not None
        behind.append(sum(each.id > stored for each in [*sub.messages, *messages]))
        return Status.DONE

    sub = scene.subscriber(answer=answer)
    sub.subscribe("t", consumeInterval=4)
    values = [b"%d" % number for number in range(40)]
    for value in values:
        scene.publish(value)
    wait_for(lambda: sub.values == values, "all came")
    # Those of a call, and as many as were consumed since the cursor was stored.
    assert max(behind) < 2 * 4


def test_preferences_are_kept_and_given_back_by_whichever_hub_has_the_topic(scene: Scene) -> None:
    scene.hub()
    scene.hub()
    sub = scene.subscriber()
    wanted = {
        "messageBound": 7,
        "consumeInterval": 5,
        "deliveryWindow": 3,
        "application": {"team": "billing", "\u00fc": ""},
        "unansweredCallsMax": 0,
    }
    sub.subscribe("t", 0, **wanted)
    owner = [hub.address for hub in scene.hubs].index(sub.owner)
    scene.topics(owner).abandon("t").result(WAIT_S)
    found = sub.subscribe("t", 1, at=scene.hubs[1 - owner].address)
    given = {name: getattr(found.preferences, name) for name in wanted}
    assert given == wanted
    changed = sub.subscribe("t", 1, deliveryWindow=9)
    assert changed.preferences.deliveryWindow == 9
    assert not changed.preferences.application, "they are changed as a whole"


def test_explicit_consume_moves_the_cursor_and_the_window_bounds_what_is_out(scene: Scene) -> None:
    scene.hub()
    sub = scene.subscriber()
    sub.subscribe("t", explicit=True, deliveryWindow=3)
    before = scene.cursor()
    scene.publish(*[b"%d" % number for number in range(8)])
    wait_for(lambda: len(sub.values) == 3, "as many as the window has")
    assert scene.cursor() == before
    sub.consume("t", sub.messages[1].id)
    wait_for(lambda: len(sub.values) == 5, "there is room for two more")
    wait_for(lambda: scene.cursor() == sub.messages[1].id, "the cursor is stored")
    with pytest.raises(IDL.TIllegalArgument):
        sub.consume("t", MessageID(sub.messages[-1].id.timestamp + 10**9))
    again = scene.subscriber(session="life2")
    again.subscribe("t")
    wait_for(lambda: again.values == [b"%d" % n for n in range(2, 8)], "what was not consumed")
    assert sub.detached() == [("t", IDL.TDetachedReason.REPLACED)]


def test_consume_moves_the_cursor_of_what_is_not_attached_and_never_back(scene: Scene) -> None:
    scene.hub()
    sub = scene.subscriber()
    sub.subscribe("t", attach=False)
    first, last = scene.publish(b"a"), scene.publish(b"b")
    for consumed in (last, first):
        sub.consume("t", consumed)
        assert scene.cursor() == last, "it is stored on return"


def test_a_message_bound_drops_the_oldest_and_counts_them(scene: Scene) -> None:
    scene.hub()
    sub = scene.subscriber()
    sub.subscribe("t", attach=False, messageBound=4)
    last = scene.publish(*[b"%d" % number for number in range(10)])
    sub.subscribe("t", 1)
    wait_for(lambda: sub.values == [b"6", b"7", b"8", b"9"], "the newest came")
    wait_for(lambda: scene.cursor() == last, "its cursor is stored")
    assert scene.counted("dropped_messages") == 6


def test_a_message_bound_holds_while_a_subscriber_is_slow(scene: Scene) -> None:
    scene.hub()
    go_on = threading.Event()

    def answer(messages: Sequence[ReceivedMessage]) -> Status:
        assert go_on.wait(WAIT_S)
        return Status.DONE

    sub = scene.subscriber(answer=answer)
    sub.subscribe("t", messageBound=2)
    scene.publish(b"0")
    wait_for(lambda: sub.calls == [[b"0"]], "a call is under way")
    scene.publish(*[b"%d" % number for number in range(1, 8)])
    go_on.set()
    wait_for(lambda: sub.values == [b"0", b"6", b"7"], "the oldest are dropped")
    assert scene.counted("dropped_messages") == 5


def test_another_session_replaces_and_unsubscribe_ends_it(scene: Scene) -> None:
    scene.hub()
    first, second = scene.subscriber(), scene.subscriber(session="life2")
    first.subscribe("t")
    scene.publish(b"a")
    wait_for(lambda: first.values == [b"a"], "it came")
    second.subscribe("t")
    assert first.detached(1_000) == [("t", IDL.TDetachedReason.REPLACED)]
    assert first.detached() == []
    scene.publish(b"b")
    wait_for(lambda: second.values == [b"b"], "it came")
    assert first.values == [b"a"]
    first.call("unsubscribe", "t")
    assert second.detached(1_000) == [("t", IDL.TDetachedReason.UNSUBSCRIBED)]
    assert scene.cursor() is None
    with pytest.raises(IDL.TNoSuchSubscription):
        first.call("unsubscribe", "t")
    with pytest.raises(IDL.TIllegalArgument):
        scene.subscriber(session="unknown").detached(0, first.owner)


def test_a_topic_that_is_left_is_told_and_goes_on_at_the_other_hub(scene: Scene) -> None:
    scene.hub()
    scene.hub()
    sub = scene.subscriber()
    sub.subscribe("t", at=scene.hubs[0].address)
    owner = [hub.address for hub in scene.hubs].index(sub.owner)
    sent, at = [], sub.owner
    for number in range(5):
        sent.append(b"%d" % number)
        last = scene.publish(sent[-1], number=owner)
        scene.topics(owner).abandon("t").result(WAIT_S)
        assert sub.detached(30_000, at) == [("t", IDL.TDetachedReason.TOPIC_LEFT)]
        owner = 1 - owner
        sent.append(b"m%d" % number)
        scene.publish(sent[-1], number=owner)
        at = scene.hubs[owner].address
        sub.subscribe("t", 1, at=at)
        wait_for(lambda: sub.values == sent, "none is lost, none comes twice, in order")
    assert last < sub.messages[-1].id


def consume_late(scene: Scene, owned: OwnedTopic, message_id: MessageID) -> None:
    """A call that found the topic owned comes to the event loop when that is over."""
    hosted = scene.hubs[0].hosted(QUEUE)
    late = hosted.subscriptions.consume(owned, Claimant("sub"), int(message_id))
    with pytest.raises(StoreUnavailableError) as caught:
        scene.hubs[0].run(late)
    assert caught.value.outcome is Outcome.NOT_APPLIED


def test_a_call_that_comes_when_the_topic_is_being_left_leaves_the_cursors_to_be_stored(
    scene: Scene,
) -> None:
    scene.hub(NEVER_STORED)
    sub = scene.subscriber()
    sub.subscribe("t")
    last = scene.publish(b"a")
    wait_for(lambda: scene.counted("delivered_messages") == 1, "it came")
    owned = scene.topics().serving("t")
    assert owned is not None
    committer = scene.topics().committers.of(owned.partition)
    with stopped_at(committer, "drained") as (reached, go_on):
        leaving = scene.topics().abandon("t")
        assert reached.wait(WAIT_S)
        consume_late(scene, owned, last)
        assert scene.cursor() != last
        go_on.set()
        leaving.result(WAIT_S)
    assert scene.cursor() == last
    assert sub.detached() == [("t", IDL.TDetachedReason.TOPIC_LEFT)]


@pytest.mark.parametrize("when", ["owned", "leaving", "detaching"])
def test_a_cursor_that_moved_is_not_stored_when_the_topic_was_lost(scene: Scene, when: str) -> None:
    scene.hub(NEVER_STORED)
    sub = scene.subscriber()
    sub.subscribe("t")
    before = scene.cursor()
    scene.publish(b"a")
    wait_for(lambda: scene.counted("delivered_messages") == 1, "it came")
    hub, topics = scene.hubs[0], scene.topics()
    attached = scene.hubs[0].hosted(QUEUE).subscriptions.sessions
    subscription = attached.find("t", "sub")
    owned = topics.serving("t")
    assert subscription is not None
    assert owned is not None
    wait_for(lambda: subscription.dirty and not subscription.running, "its cursor moved")

    async def end_call() -> None:
        assert subscription.ended is not None
        subscription.ended.set_result(None)

    committer = topics.committers.of(owned.partition)
    with stopped_at(committer, "drained") as (reached, go_on):
        if when == "detaching":  # It waits for the end of a call.
            subscription.running = True
            go_on.set()
        if when != "owned":
            leaving = topics.abandon("t")
            assert reached.wait(WAIT_S)
        if when == "detaching":
            wait_for(lambda: subscription.ended is not None, "it is being detached")
        topics.lose()
        wait_for(lambda: subscription.over, "it is cut off")
        if when == "detaching":
            hub.run(end_call())
        go_on.set()
        if when != "owned":
            leaving.result(WAIT_S)
    # What looks for cursors that moved has found it before.
    hub.run(attached.try_to_store(subscription))
    assert scene.cursor() == before


def test_that_cursors_are_not_stored_is_said_once_an_outage_and_of_which_subscription(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    scene.hub(HubLimits(store_every_ms=20.0, fault_quiet_ms=200.0))
    subs = [scene.subscriber(), scene.subscriber()]
    for topic, sub in zip("tu", subs, strict=True):
        sub.subscribe(topic, 0)
    tries: list[str] = []

    async def late(self: SubscriptionRecords, topic: str, *args: Any, **named: Any) -> Version:
        tries.append(topic)
        raise StoreUnavailableError("the store of a subscription's record did not answer in time")

    def lines(part: str) -> list[str]:
        return [each.getMessage() for each in caplog.records if part in each.getMessage()]

    def outage(number: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SubscriptionRecords, "update", late)
            last = scene.publish(b"a")
            scene.publish(b"b", topic="u")
            tries.clear()
            wait_for(lambda: min(map(tries.count, "tu")) > 5, "both are tried again and again")
            said = lines("did not answer in time")
            assert len(said) == number
            assert any(f"'{topic}', 'sub'" in said[-1] for topic in "tu")
        wait_for(lambda: scene.cursor() == last, "it is stored")
        again = "are stored again"  # What else is stored says it.
        wait_for(lambda: scene.publish(b"c") and len(lines(again)) == number, "it is over")

    outage(1)
    outage(2)


def test_a_call_that_knows_an_ownership_that_is_over_does_not_end_what_the_next_one_has(
    scene: Scene,
) -> None:
    scene.hub()
    sub = scene.subscriber()
    sub.subscribe("t")
    before = scene.topics().serving("t")
    assert before is not None
    scene.topics().abandon("t").result(WAIT_S)
    sub.subscribe("t", 1)
    consume_late(scene, before, MessageID(1))
    last = scene.publish(b"a")
    wait_for(lambda: sub.values == [b"a"], "it is attached")
    wait_for(lambda: scene.cursor() == last, "its cursor is stored")


def test_of_many_topics_that_come_only_those_are_read_that_have_something(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.hub()
    topics = [f"t{number}" for number in range(30)]
    sub = scene.subscriber()
    for topic in topics:
        sub.subscribe(topic)
    scene.publish(b"seen", topic="t3")
    wait_for(lambda: sub.values == [b"seen"], "it came")
    for topic in topics:
        sub.close_subscription(topic)
    scene.publish(b"missed", topic="t7")
    scene.hub()
    scene.hubs[0].terminate()
    read: list[str] = []
    read_topic = TopicCursor.read

    def note(cursor: TopicCursor, deadline: Deadline) -> Work[list[hqueue.engine.Batch]]:
        read.append(cursor.topic)
        return read_topic(cursor, deadline)

    monkeypatch.setattr(TopicCursor, "read", note)
    scene.publish(b"new", topic="t9", number=1)
    again = scene.subscriber(session="life2")
    for topic in topics:
        again.subscribe(topic, 1, at=scene.hubs[1].address)
    wait_for(lambda: sorted(again.values) == [b"missed", b"new"], "they came")
    scene.publish(*[b"%d" % number for number in range(5)], topic="t1", number=1)
    wait_for(lambda: len(again.values) == 7, "and what is published then")
    assert set(read) == {"t7", "t9"}


def test_a_silent_session_is_over(scene: Scene) -> None:
    scene.hub(session_ms=1_000)
    sub = scene.subscriber()
    sub.subscribe("t")
    sessions = scene.hubs[0].hosted(QUEUE).subscriptions.sessions
    assert sessions.attached == 1
    wait_for(lambda: sessions.attached == 0, "it is detached")
    last = scene.publish(b"a")
    again = scene.subscriber(session="life2")
    again.subscribe("t", 1)
    wait_for(lambda: again.values == [b"a"], "it is delivered where somebody is")
    wait_for(lambda: scene.cursor() == last, "its cursor is stored")
    assert sub.values == []


def test_a_host_outside_the_networks_that_may_be_called_is_refused(scene: Scene) -> None:
    scene.hub()
    sub = scene.subscriber()
    with pytest.raises(IDL.TIllegalArgument) as refused:
        sub.call("subscribe", "t", 2, IDL.TDelivery("203.0.113.7", 1, "s"), None)
    assert "callback_networks" in refused.value.message
    assert scene.hubs[0].owns(QUEUE) == set()


@pytest.mark.parametrize("host", ["a b", "\0", "h\x1b[2J", "134744072", "8.8"], ids=repr)
def test_what_is_no_host_is_refused(scene: Scene, host: str) -> None:
    scene.hub()
    sub = scene.subscriber()
    with pytest.raises(IDL.TIllegalArgument):
        sub.call("subscribe", "t", 2, IDL.TDelivery(host, 1, "s"), None)
    assert scene.hubs[0].owns(QUEUE) == set()


@pytest.mark.parametrize(
    ("host", "reason"), [("localhost", "callback_networks"), ("no-such-host.invalid", "")]
)
def test_it_is_said_once_that_a_name_is_not_called_and_why(
    scene: Scene, caplog: pytest.LogCaptureFixture, host: str, reason: str
) -> None:
    caplog.set_level("DEBUG", "hqueue_workers.hub.subscribing.delivering")
    scene.hub(callback_networks="10.0.0.0/8")
    sub = scene.subscriber()
    delivery = sub.delivery()
    delivery.host = host
    sub.call("subscribe", "t", 2, delivery, None)
    scene.publish(b"a")

    def tries() -> int:
        return sum(each.startswith("no answer from") for each in caplog.messages)

    wait_for(lambda: tries() > 2, "it was tried again")
    said = [each for each in caplog.messages if f"{host}:" in each]
    assert len(said) == 1
    assert "get no messages" in said[0]
    assert reason in said[0]
    assert sub.values == []


def test_a_name_that_resolves_outside_the_networks_is_not_called(scene: Scene) -> None:
    scene.hub(callback_networks="10.0.0.0/8")
    sub = scene.subscriber()
    delivery = sub.delivery()
    delivery.host = "localhost"
    sub.call("subscribe", "t", 2, delivery, None)
    scene.publish(b"a")
    sessions = scene.hubs[0].hosted(QUEUE).subscriptions.sessions
    wait_for(lambda: sessions.every()[0].tries.failures > 0, "it was not reached")
    assert sub.values == []


def test_no_more_are_created_from_an_address_than_may_be_also_if_none_is_attached(
    scene: Scene,
) -> None:
    scene.hub(topic_creations_per_hour_max=3)
    sub = scene.subscriber()
    for number in range(12):
        sub.name = f"sub{number}"
        sub.call("subscribe", "t", 2, None, None)
    sub.name = "sub12"
    with pytest.raises(IDL.TBusy):
        sub.call("subscribe", "t", 2, None, None)
    sub.name = "sub0"
    sub.call("subscribe", "t", 1, None, None)


def test_no_more_are_attached_than_may_be(scene: Scene) -> None:
    scene.hub(subscriptions_max=1)
    sub = scene.subscriber()
    sub.subscribe("t")
    with pytest.raises(IDL.TBusy):
        sub.subscribe("u")
    sub.close_subscription("t")
    sub.subscribe("u")


def test_bad_input_is_refused_before_anything_happens(scene: Scene) -> None:
    scene.hub()
    sub = scene.subscriber()
    good = sub.delivery()
    for name, topic, mode, delivery, preferences in (
        ("", "t", 2, good, None),
        ("sub", "", 2, good, None),
        ("sub", "t", 7, good, None),
        ("sub", "t", 2, IDL.TDelivery("h h", 1, "s"), None),
        ("sub", "t", 2, IDL.TDelivery("h", 0, "s"), None),
        ("sub", "t", 2, IDL.TDelivery("h", 1, "\n"), None),
        ("sub", "t", 2, IDL.TDelivery("h", None, None), None),
        ("sub", "t", 2, good, IDL.TPreferences(messageBound=0)),
        ("sub", "t", 2, good, IDL.TPreferences(application={"a": "b" * 2_000})),
    ):
        sub.name = name
        with pytest.raises(IDL.TIllegalArgument):
            sub.call("subscribe", topic, mode, delivery, preferences)
    sub.name = "sub"
    for wait_ms in (-1, 30_001):
        with pytest.raises(IDL.TIllegalArgument):
            sub.detached(wait_ms, scene.hubs[0].address)
    with pytest.raises(IDL.TNoSuchSubscription):
        sub.consume("t", MessageID(1))
    assert scene.hubs[0].owns(QUEUE) == set()


def test_what_applications_keep_in_preferences_is_bounded_for_who_creates_and_who_changes_them(
    scene: Scene,
) -> None:
    scene.hub(HubLimits(preferences_bytes_per_hour_max=1_500))
    scene.publish(b"v")
    sub = scene.subscriber()
    kept = sub.subscribe("t", 0, application={"a": "b" * 800})
    assert kept.created
    with pytest.raises(IDL.TBusy):
        sub.subscribe("t", 2, application={"a": "c" * 800})
    assert sub.subscribe("t", 2).preferences.application == {"a": "b" * 800}
