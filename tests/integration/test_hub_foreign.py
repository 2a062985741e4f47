"""Hubs called by Apache Thrift's own library, with nothing but the IDL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Address
from tests.support.apache_thrift import HUB, ApacheClient, apache_module
from tests.support.backends import Backend
from tests.support.hub_subscribers import Subscriber
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_memory

IDL = apache_module(HUB)
REDIRECTS_MAX = 10


class Caller:
    """Calls hubs as the IDL says: follows redirects, and remembers nothing."""

    def __init__(self, stack: contextlib.ExitStack, hubs: list[HubThread]) -> None:
        self._stack = stack
        self._connections: dict[Address, ApacheClient] = {}
        self.hubs = [hub.address for hub in hubs]
        self.redirects = 0

    def at(self, hub: Address) -> ApacheClient:
        if hub not in self._connections:
            opened = ApacheClient(hub.host, hub.port, idl=HUB)
            self._connections[hub] = self._stack.enter_context(opened)
        return self._connections[hub]

    def call(self, method: str, *given: Any, first: int = 0) -> Any:
        hub, redirected = self.hubs[first], False
        for _ in range(REDIRECTS_MAX):
            try:
                return self.at(hub).call(method, *given, redirected)
            except IDL.TRedirect as redirect:
                self.redirects += 1
                hub, redirected = Address(redirect.host, redirect.port), True
        raise AssertionError("redirects without end")


@pytest.fixture
def queue(make_queue: Callable[..., hqueue.Queue]) -> hqueue.Queue:
    return make_queue(2)


@pytest.fixture
def caller(backend: Backend, queue: hqueue.Queue) -> Iterator[Caller]:
    with contextlib.ExitStack() as stack:

        def start() -> HubThread:
            client = stack.enter_context(backend.connect())
            return stack.enter_context(HubThread(client, queue.name, balance_ms=3_600_000))

        yield Caller(stack, [start(), start()])


def message(value: bytes) -> Any:
    return IDL.TMessage(
        topic=b"", value=value, key=b"k", headers=[IDL.THeader(name=b"n", value=b"v")]
    )


def position(message_id: Any) -> tuple[int, int]:
    return message_id.timestamp, message_id.sequenceID


@pytest.mark.in_memory_first
def test_what_is_published_by_any_hub_is_in_the_topic_once_and_in_order(
    caller: Caller, queue: hqueue.Queue
) -> None:
    name = queue.name
    first = caller.call("publish", name, "me", "t", message(b"0"))
    assert (first.count, first.partitionID in range(2)) == (1, True)
    caller.call("publishMessages", name, "me", "t", [message(b"1"), message(b"2")], first=1)
    for number, values in ((7, [b"3"]), (7, [b"3", b"4"])):
        sent = [message(value) for value in values]
        done = caller.call("publishOnce", name, "me", "t", sent, number, None, first=1)
    assert (done.dropped, done.published.count) == (1, 1)
    newest = caller.call("newestNumber", name, "me", "t", None)
    assert newest.number == 8
    assert caller.redirects >= 1
    with queue.scan_topic("t") as scanner:
        messages = list(scanner)
    assert [each.value for each in messages] == [b"%d" % number for number in range(5)]
    assert messages[0].key == b"k"
    assert messages[0].headers == (("n", b"v"),)
    assert position(first.id) == (messages[0].id.timestamp, messages[0].id.sequence)


@pytest.mark.in_memory_first
def test_a_subscription_is_made_attached_consumed_and_ended(
    caller: Caller, queue: hqueue.Queue
) -> None:
    name = queue.name
    wanted = IDL.TPreferences(messageBound=9, application={"team": "ü"})
    with Subscriber(name, lambda: caller.hubs) as sub:
        delivery = IDL.TDelivery(
            host="127.0.0.1", port=sub.port, session=sub.session, explicitConsume=True
        )
        found = caller.call("subscribe", name, "sub", "t", 0, delivery, wanted)
        assert found.created
        assert found.preferences.messageBound == 9
        assert found.preferences.application == {"team": "ü"}
        published = caller.call("publish", name, "me", "t", message(b"v"), first=1)
        wait_for(lambda: sub.values == [b"v"], "it is delivered")
        caller.call("consume", name, "sub", "t", published.id)
        again = caller.call("subscribe", name, "sub", "t", 1, delivery, None)
        assert position(again.consumed) == position(published.id)
        caller.call("unsubscribe", name, "sub", "t")


def test_a_struct_without_fields_counts_as_left_out(caller: Caller, queue: hqueue.Queue) -> None:
    name, nowhere = queue.name, IDL.TDelivery()
    wanted = IDL.TPreferences(messageBound=9, application={"team": "ü"})
    made = caller.call("subscribe", name, "sub", "t", 0, nowhere, wanted)
    zero = IDL.TDelivery(host="", port=0, session="")
    for delivery, given in ((None, None), (nowhere, IDL.TPreferences()), (zero, None)):
        found = caller.call("subscribe", name, "sub", "t", 1, delivery, given)
        assert not found.created
        assert vars(found.preferences) == vars(made.preferences)
        assert found.preferences.messageBound == 9
    defaults = caller.call("subscribe", name, "sub", "t", 1, None, IDL.TPreferences(application={}))
    assert (defaults.preferences.messageBound, defaults.preferences.application) == (None, {})
    for number, since in (
        (0, None),
        (1, IDL.TMessageID()),
        (2, IDL.TMessageID(timestamp=0, sequenceID=0)),
    ):
        sent = [message(b"v")]
        done = caller.call("publishOnce", name, "me", "t", sent, number, since)
        assert (done.dropped, done.published.count) == (0, 1)
        assert caller.call("newestNumber", name, "me", "t", since).number == number
    told = caller.call("changeAccess", name, "me", "t", IDL.TTopicAccess())
    assert vars(told) == vars(caller.call("changeAccess", name, "me", "t", None))


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        ("a" * 200, True),
        ("_0.-Z", True),
        ("a" * 201, False),
        ("", False),
        ("-a", False),
        (".a", False),
        ("ä", False),
        ("a b", False),
        ("a/b", False),
    ],
)
def test_a_name_is_what_the_idl_says_and_nothing_else(
    caller: Caller, queue: hqueue.Queue, name: str, may_be: bool
) -> None:
    calls = {
        "publisher": ("publish", queue.name, name, "t", message(b"v")),
        "subscriber": ("subscribe", queue.name, name, "t", 2, None, None),
        "caller": ("changeAccess", queue.name, name, "t", None),
        "rule": ("changeAccess", queue.name, "me", "t", IDL.TTopicAccess(manage=["me", name])),
    }
    for what, (method, *given) in calls.items():
        refused = False
        try:
            caller.call(method, *given)
        except IDL.TIllegalArgument:
            refused = True
        assert refused is not may_be, what


@pytest.mark.parametrize(
    ("error", "method", "given"),
    [
        ("TIllegalArgument", "publish", ("q", "", "t", message(b"v"))),
        ("TIllegalArgument", "publish", ("q", "me", "", message(b"v"))),
        ("TIllegalArgument", "publishMessages", ("q", "me", "t", [])),
        ("TNoSuchQueue", "publish", ("nowhere", "me", "t", message(b"v"))),
        ("TNoSuchSubscription", "unsubscribe", ("q", "sub", "t")),
        ("TIllegalArgument", "moveTopic", ("q", "me", "t", "nowhere", 1)),
        ("TIllegalArgument", "publish", ("q", "me", "t", IDL.TMessage())),
        ("TIllegalArgument", "publish", ("q", "me", "hqueue.x", message(b"v"))),
        ("TIllegalArgument", "publish", ("q", "me", "t" * 256, message(b"v"))),
        ("TIllegalArgument", "consume", ("q", "sub", "t", IDL.TMessageID())),
        ("TIllegalArgument", "subscribe", ("q", "s", "t", 0, IDL.TDelivery(host="h"), None)),
        ("TIllegalArgument", "subscribe", ("q", "s", "t", 0, IDL.TDelivery(port=1), None)),
        (
            "TIllegalArgument",
            "subscribe",
            ("q", "s", "t", 0, None, IDL.TPreferences(messageBound=0)),
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_error_that_the_idl_declares(
    caller: Caller, queue: hqueue.Queue, error: str, method: str, given: tuple[Any, ...]
) -> None:
    named = (queue.name if given[0] == "q" else given[0], *given[1:])
    with pytest.raises(getattr(IDL, error)) as caught:
        caller.call(method, *named)
    assert caught.value.message


def test_rules_are_told_and_changed_and_a_topic_is_moved_and_deleted(
    caller: Caller, queue: hqueue.Queue
) -> None:
    name = queue.name
    rules = IDL.TTopicAccess(publish=["me", "loader-*"])
    caller.call("changeAccess", name, "me", "t", rules)
    told = caller.call("changeAccess", name, "me", "t", IDL.TTopicAccess(), first=1)
    assert (told.publish, told.subscribe, told.manage) == (["me", "loader-*"], ["*"], ["*"])
    for to in reversed(caller.hubs):
        caller.call("moveTopic", name, "me", "t", to.host, to.port)
        assert caller.at(to).call("publish", name, "me", "t", message(b"v"), False).count == 1
    assert caller.call("deleteTopic", name, "me", "t")
    assert not caller.call("deleteTopic", name, "me", "t")
    assert caller.at(caller.hubs[0]).call("apiAddress") == ""
