"""Subscriptions over real stores: none is lost, the order is kept, and cursors never go back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

import hqueue
from hqueue import MessageID, Status
from tests.support.backends import Backend
from tests.support.hub_faces import both_faces
from tests.support.hub_subscribers import IDL, Subscriber
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

WAIT_S = 240.0

pytestmark = pytest.mark.parametrize("store", ["zookeeper", "hbase"])


@pytest.fixture
def queue(make_queue: Callable[..., hqueue.Queue]) -> str:
    return make_queue(2).name


class Hubs:
    """Two hubs, and what is published through them."""

    def __init__(
        self, stack: contextlib.ExitStack, backend: Backend, queue: str, store: str
    ) -> None:
        self.queue = queue
        self.hubs = [
            stack.enter_context(
                HubThread(
                    stack.enter_context(backend.connect(metadata_store=store)),
                    queue,
                    balance_ms=3_600_000,
                )
            )
            for _ in range(2)
        ]
        self.client = stack.enter_context(backend.connect(metadata_store=store))
        self.metadata = stack.enter_context(self.client.topic_metadata(queue))
        addresses = ",".join(str(hub.address) for hub in self.hubs)
        self.publisher = stack.enter_context(hqueue.connect_hubs(addresses, queue=queue))

    def cursor(self, topic: str, subscriber: str = "sub") -> MessageID | None:
        found = self.metadata.subscriptions.read_subscription_data(topic, subscriber).result(WAIT_S)
        return None if found is None or found.value.state is None else found.value.state.consumed

    def abandon(self, topic: str) -> None:
        for hub in self.hubs:
            hub.hosted(self.queue).topics.abandon(topic).result(WAIT_S)


def test_a_subscriber_gets_all_in_order_while_its_topic_goes_from_hub_to_hub(
    backend: Backend, queue: str, store: str
) -> None:
    with contextlib.ExitStack() as stack:
        hubs = Hubs(stack, backend, queue, store)
        sub = stack.enter_context(Subscriber(queue, lambda: [hubs.hubs[0].address]))
        directly = hubs.client.queue(queue)
        assert sub.subscribe("t", 0, consumeInterval=5).created
        sent: list[bytes] = []
        last = MessageID(0)
        for round_ in range(3):
            for number in range(20):
                sent.append(b"%d-%d" % (round_, number))
                last = hubs.publisher.topic("t").publish(sent[-1])
                if number % 5 == 0:  # Past the hub: nothing of the topic, for any reader.
                    direct = hqueue.Message("t", b"direct", headers=[("n", b"v")])
                    directly.put(direct, partition=number % 2)
            at = sub.owner
            hubs.abandon("t")
            assert ("t", IDL.TDetachedReason.TOPIC_LEFT) in sub.detached(30_000, at)
            # It lies with the other hub from now on, which is given some before it is subscribed.
            other = next(hub.address for hub in hubs.hubs if hub.address != at)
            sub.subscribe("t", 1, at=other)
        wait_for(lambda: list(dict.fromkeys(sub.values)) == sent, "none is lost, in order")
        wait_for(lambda: hubs.cursor("t") == last, "its cursor is stored")
        assert [each.value for each in directly.scan_topic("t")] == sent
        ids = [each.id for each in sub.messages]
        assert len(ids) == len(set(ids)), "hubs that leave in order deliver nothing twice"


def test_a_subscription_is_closed_attached_rejected_and_ended(
    backend: Backend, queue: str, store: str
) -> None:
    with contextlib.ExitStack() as stack:
        hubs = Hubs(stack, backend, queue, store)
        answers = iter([Status.DONE, Status.RETRY, Status.DEAD_LETTER])
        sub = stack.enter_context(
            Subscriber(
                queue, lambda: [hubs.hubs[0].address], answer=lambda _: next(answers, Status.DONE)
            )
        )
        hubs.publisher.topic("t").publish(b"before")
        assert sub.subscribe("t", 2).created
        for value in (b"a", b"rejected"):
            last = hubs.publisher.topic("t").publish(value)
            wait_for(lambda at=last: hubs.cursor("t") == at, "it is done with")  # type: ignore[misc]
        assert sub.calls == [[b"a"], [b"rejected"], [b"rejected"]]
        letters = list(hubs.client.queue(queue).dead_letters.waiting("sub"))
        assert [each.message.value for each in letters] == [b"rejected"]
        sub.close_subscription("t")
        behind = [hubs.publisher.topic("t").publish(b"%d" % number) for number in range(8)]
        later = stack.enter_context(
            Subscriber(queue, lambda: [hubs.hubs[1].address], session="life2")
        )
        later.subscribe("t", 1, explicit=True, messageBound=5, deliveryWindow=3)
        wait_for(lambda: later.values == [b"3", b"4", b"5"], "the oldest are dropped")
        later.consume("t", later.messages[2].id)
        wait_for(lambda: later.values == [b"3", b"4", b"5", b"6", b"7"], "there is room")
        later.consume("t", behind[-1])
        later.close_subscription("t")
        assert hubs.cursor("t") == behind[-1]
        later.call("unsubscribe", "t")
        assert hubs.cursor("t") is None


def test_a_hub_that_ends_leaves_its_subscriptions_to_the_other_at_their_cursors(
    backend: Backend, queue: str, store: str
) -> None:
    with contextlib.ExitStack() as stack:
        hubs = Hubs(stack, backend, queue, store)
        sub = stack.enter_context(Subscriber(queue, lambda: [hubs.hubs[0].address]))
        sub.subscribe("t", 0)
        hubs.publisher.topic("t").publish(b"a")
        wait_for(lambda: sub.values == [b"a"], "it came")
        owner = next(hub for hub in hubs.hubs if hub.address == sub.owner)
        other = next(hub for hub in hubs.hubs if hub is not owner)
        stored = wait_for(lambda: hubs.cursor("t"), "there is a cursor")
        owner.terminate()

        def again() -> bool:
            try:
                sub.subscribe("t", 1, at=other.address)
            except (IDL.TUnavailable, OSError):
                return False
            return True

        wait_for(again, "the other takes it")
        hubs.publisher.topic("t").publish(b"b")
        wait_for(lambda: sub.values[-1] == b"b", "it goes on")
        assert sub.values == [b"a", b"b"]
        assert (hubs.cursor("t") or MessageID(0)) >= stored


@both_faces
def test_a_client_that_knows_hubs_alone_follows_its_topic_from_hub_to_hub(
    backend: Backend, queue: str, store: str, hub_face: str
) -> None:
    taken: list[hqueue.ReceivedMessage] = []
    with contextlib.ExitStack() as stack:
        hubs = Hubs(stack, backend, queue, store)
        subscription = hubs.publisher.topic("t").subscribe("sub", taken.extend)
        sent: list[bytes] = []
        last = MessageID(0)
        for round_ in range(3):
            for number in range(10):
                sent.append(b"%d-%d" % (round_, number))
                last = hubs.publisher.topic("t").publish(sent[-1])
            wait_for(lambda: [each.value for each in taken] == sent, "none is lost or doubled")
            hubs.abandon("t")
        hubs.hubs[0].terminate()
        sent.append(b"last")
        last = hubs.publisher.topic("t").publish(sent[-1])
        wait_for(lambda: [each.value for each in taken] == sent, "the other hub delivers")
        subscription.close()
        wait_for(lambda: hubs.cursor("t") == last, "its cursor is stored")


def test_copies_that_are_put_past_hubs_number_nothing(
    backend: Backend, queue: str, store: str
) -> None:
    copied = [("hqueue.publisher", b"me"), ("hqueue.number", b"9")]
    with contextlib.ExitStack() as stack:
        hubs = Hubs(stack, backend, queue, store)
        directly = hubs.client.queue(queue)
        addresses = [hub.address for hub in hubs.hubs]
        for number in range(1, 4):
            with hqueue.connect_hubs(addresses, queue=queue, publisher="me") as me:
                assert me.topic("t").last_sequence_number() == (number - 1 or None)
                done = me.topic("t").publish_idempotent([b"%d" % (number - 1), b"%d" % number],
                                       sequence_number=number - 1)  # fmt: skip
                assert done.duplicates == (0 if number == 1 else 1)
            for partition in range(2):
                # As a release did that refused no such headers.
                copy = hqueue.Message("t", b"copy", headers=copied)
                directly._log.appender.put_system([copy], partition)
            hubs.abandon("t")
        assert [each.value for each in directly.scan_topic("t")] == [b"0", b"1", b"2", b"3"]
        known = hubs.metadata.persistence.read_topic_persistence_info("t").result(WAIT_S)
        assert known is not None
        last = {each.partition: each for each in directly.verify(ranges={"t": known.value.ranges})}
        assert [each.findings for each in last.values()] == [[], []]
        assert sum(each.outside for each in last.values()) >= 5
