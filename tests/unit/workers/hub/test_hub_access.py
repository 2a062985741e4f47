"""Hubs that go by access rules, over memory: what rules allow, and what a change of them does."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hqueue import InvalidInputError, Message, NotAllowedError, Outcome, SettingsError
from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.ports import ANY
from hqueue.rpc.services import load
from hqueue_workers.api.structs import API, SERVICE
from tests.support.certificates import Certificates
from tests.support.hubs import HubThread
from tests.support.secured_hubs import QUEUE, RULES, RuledHubs
from tests.support.waiting import wait_for
from tests.unit.workers.hub.test_hub_security import audit

IDL = load("hub")
NEVER = load("subscriber").TMessageID(2**47, 0)

both_faces = pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "asyncio"])


@pytest.fixture
def scene(certificates: Certificates) -> Iterator[RuledHubs]:
    with contextlib.ExitStack() as stack:
        yield RuledHubs(stack, certificates)


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except NotAllowedError as exc:
        return exc.outcome is Outcome.NOT_APPLIED
    return False


@both_faces
def test_each_operation_needs_a_rule_of_its_own(scene: RuledHubs, in_loop: bool) -> None:
    hub = scene.hub(**RULES)
    loader = scene.connect("loader", in_loop=in_loop)
    ops = scene.connect("ops", in_loop=in_loop)
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: loader.topic("clicks-new").publish(b"v"),
        "publish": lambda: loader.topic("clicks").publish(b"v"),
        "subscribe": lambda: loader.topic("clicks").subscribe("loader", print).close(),
        "consume": lambda: scene.consume("loader", "clicks", "loader", at=hub),
        "unsubscribe": lambda: loader.topic("clicks").unsubscribe("loader"),
        "administer": lambda: loader.topic("clicks").acl(),
        "move": lambda: loader.topic("clicks").move(str(hub.address)),
        "delete": lambda: loader.topic("clicks").delete(),
    }
    ops.topic("clicks").publish(b"an administrator needs no rule")
    assert [name for name, call in calls.items() if not refused(call)] == []
    scene.change("grant", "load*", "publish", queue=QUEUE, topic="clicks*")
    wait_for(lambda: not refused(calls["publish"]), "the hub follows the change")
    for name, call in calls.items():
        if name != "publish":
            assert refused(call), name
            scene.change("grant", "loader", name, queue=QUEUE, topic="clicks*")
            wait_for(lambda: not refused(call), name)  # noqa: B023
    assert refused(lambda: loader.topic("other").publish(b"v"))
    scene.change("revoke", "load*", "publish", queue=QUEUE, topic="clicks*")
    wait_for(lambda: refused(calls["create"]), "the right is gone")


def test_the_right_is_checked_before_what_the_arguments_name(
    scene: RuledHubs, caplog: pytest.LogCaptureFixture
) -> None:
    hub = scene.hub(**RULES)
    scene.change("grant", "*", "subscribe")
    scene.change("grant", "reader", "create,publish,consume")
    scene.change("grant", "other", "consume")
    topics = {name: scene.connect(name).topic("t") for name in ("ops", "reader", "other")}
    wait_for(lambda: not refused(lambda: topics["reader"].publish(b"v")), "the hub follows")
    absent = scene.connect("loader", publisher="loader").topic("absent")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "hqueue.audit"):
        for move in (topics["reader"].move, absent.move):
            assert refused(lambda: move("localhost:1"))  # noqa: B023
        assert refused(absent.delete)
        assert refused(absent.acl)
        assert refused(lambda: absent.unsubscribe("loader"))
        assert refused(absent.last_sequence_number)
    actions = ["move", "move", "delete", "acl", "unsubscribe", "publish"]
    lines = audit(caplog, logging.WARNING)
    assert [line.partition('action="')[2].partition('"')[0] for line in lines] == actions
    with pytest.raises(InvalidInputError, match="not available"):
        topics["ops"].move("localhost:1")
    with topics["reader"].subscribe("reader", print):
        pass
    with pytest.raises(IDL.TNotAllowed), scene.calls("other", hub.address) as calls:
        calls.consume(QUEUE, "reader", "t", NEVER, False)
    with (
        pytest.raises(IDL.TIllegalArgument, match="no message with such an ID"),
        scene.calls("reader", hub.address) as calls,
    ):
        calls.consume(QUEUE, "reader", "t", NEVER, False)


@both_faces
def test_the_topics_acl_must_allow_it_too(scene: RuledHubs, in_loop: bool) -> None:
    scene.hub(**RULES)
    scene.change("grant", "*", "create,publish")
    ops = scene.connect("ops", in_loop=in_loop).topic("t")
    loader, reader = (scene.connect(name, in_loop=in_loop).topic("t") for name in ("a", "b"))
    wait_for(lambda: not refused(lambda: loader.publish(b"v")), "the hub follows the change")
    ops.set_acl(publish=["a"])
    loader.publish(b"v")
    assert refused(lambda: reader.publish(b"v"))
    ops.publish(b"v")


@both_faces
def test_rules_give_names_to_others_than_their_owners(scene: RuledHubs, in_loop: bool) -> None:
    scene.hub(**RULES)
    scene.change("grant", "*", "create,publish,subscribe,unsubscribe")
    scene.change("grant", "audit", "subscribe", name="r*")

    def topic(principal: str, publisher: str = "") -> Any:
        made = scene.connect(principal, in_loop=in_loop, publisher=publisher or principal)
        return made.topic("t")

    reader, audit_, other = topic("reader"), topic("audit"), topic("other")
    wait_for(lambda: not refused(lambda: reader.publish(b"v")), "the hub follows the changes")
    for principal, name in ((reader, "reader"), (other, "other"), (audit_, "report-1")):
        with principal.subscribe(name, print):
            pass
    assert refused(lambda: other.subscribe("reader", print))
    assert refused(lambda: other.subscribe("report-1", print))
    with audit_.subscribe("reader", print):
        pass
    assert refused(lambda: audit_.subscribe("other", print))
    assert refused(lambda: audit_.unsubscribe("reader")), "only to subscribe"
    reader.unsubscribe("reader")

    def numbered() -> None:
        topic("loader-2", "loader").publish_idempotent([b"v"], sequence_number=0)

    topic("loader", "loader").publish_idempotent([b"v"], sequence_number=7)
    assert refused(numbered)
    scene.change("grant", "loader-*", "publish", name="loader")
    wait_for(lambda: not refused(numbered), "the hub follows the change")
    assert topic("loader").last_sequence_number() == 7


@both_faces
def test_nobody_takes_the_name_of_a_principal_that_comes_later(
    scene: RuledHubs, in_loop: bool
) -> None:
    scene.hub(**RULES)
    scene.change("grant", "*", "create,publish,subscribe,unsubscribe")
    scene.change("grant", "mallory", "subscribe", name="shared-*")
    mallory, app = (scene.connect(name, in_loop=in_loop).topic("t") for name in ("mallory", "app"))
    wait_for(lambda: not refused(lambda: app.publish(b"v")), "the hub follows the changes")
    for name in ("app", "free"):
        assert refused(lambda: mallory.subscribe(name, print))  # noqa: B023
    for topic, name in ((mallory, "mallory"), (mallory, "shared-1"), (app, "app")):
        with topic.subscribe(name, print):
            pass
    app.unsubscribe("app")


@both_faces
def test_a_subscriber_whose_right_is_revoked_gets_nothing_more(
    scene: RuledHubs, in_loop: bool
) -> None:
    scene.hub(**RULES)
    scene.change("grant", "*", "create,publish,subscribe")
    got: dict[str, list[bytes]] = {"reader": [], "other": []}
    topics = {name: scene.connect(name, in_loop=in_loop).topic("t") for name in got}
    wait_for(lambda: not refused(lambda: topics["other"].publish(b"0")), "the hub follows")
    with contextlib.ExitStack() as stack:
        for name, topic in topics.items():
            take = got[name].extend
            listen = lambda messages, take=take: take(m.value for m in messages)  # noqa: E731
            stack.enter_context(topic.subscribe(name, listen))
        topics["other"].publish(b"1")
        wait_for(lambda: all(b"1" in each for each in got.values()), "both get it")
        scene.change("grant", "other", "publish,subscribe")
        scene.change("revoke", "*", "create,publish,subscribe")
        (hub,) = scene.hubs
        sessions = hub.hosted(QUEUE).subscriptions.sessions
        wait_for(lambda: sessions.find("t", "reader") is None, "it is detached")
        topics["other"].publish(b"2")
        wait_for(lambda: b"2" in got["other"], "the other one gets it")
    assert b"2" not in got["reader"]


def test_changes_are_in_the_audit_and_the_last_rules_hold_when_the_record_is_gone(
    scene: RuledHubs, caplog: pytest.LogCaptureFixture
) -> None:
    scene.change("grant", "loader", "create,publish")
    hub = scene.hub(**RULES)
    topic = scene.connect("loader").topic("t")
    topic.publish(b"v")
    caplog.clear()
    with caplog.at_level(logging.INFO, "hqueue.audit"):
        scene.change("grant", "reader", "subscribe", topic="t*", name="r-*")
        expected = 'who="anonymous" action="access" added="reader subscribe * t* r-*" allowed="yes"'
        wait_for(lambda: audit(caplog) == [expected], "the change is in the audit")
        scene.change("revoke", "loader", "publish")
        added = 'added="loader create * * -" removed="loader create,publish * * -"'
        wait_for(lambda: added in audit(caplog)[-1], "what it became, too")
        scene.change("grant", "loader", "publish")
        wait_for(lambda: not refused(lambda: topic.publish(b"v")), "as before")
        scene.write(b"what is this")
        wait_for(lambda: "the access rules can't be read" in caplog.text, "the log says so")
        topic.publish(b"v")
        scene.coordination.store.records.delete({scene.coordination.paths.access_rules: ANY})
        wait_for(lambda: "the record of the access rules is gone" in caplog.text, "again")
        topic.publish(b"v")
        assert refused(lambda: scene.connect("other").topic("t").publish(b"v"))
        scene.change("grant", "other", "publish")
        wait_for(lambda: refused(lambda: topic.publish(b"v")), "another record counts")
    assert hub.owns(QUEUE) == {"t"}


def test_a_hub_that_cannot_read_the_rules_does_not_start(scene: RuledHubs) -> None:
    scene.write(b'{"version": 2, "rules": []}')
    with pytest.raises(UnsupportedFormatError):
        scene.hub(**RULES)


def test_without_a_record_there_are_administrators_alone(scene: RuledHubs) -> None:
    scene.hub(**RULES)
    scene.connect("ops").topic("t").publish(b"v")
    assert refused(lambda: scene.connect("loader").topic("t").publish(b"v"))


def test_rules_need_principals(scene: RuledHubs) -> None:
    with (
        pytest.raises(SettingsError, match="which callers can only prove with tls"),
        HubThread(scene.open(), QUEUE, **RULES),
    ):
        pass
    with pytest.raises(SettingsError, match="all, acl or rules"):
        scene.hub(authorizer="some")
    with pytest.raises(SettingsError, match="the name of a subscriber"):
        scene.hub(**{**RULES, "administrators": "a b"})


@both_faces
def test_the_thrift_api_goes_by_rules(
    scene: RuledHubs, in_loop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene.hub(**RULES, api_port=0)
    clients = {
        name: scene.connect(name, in_loop=in_loop).queue()
        for name in ("loader", "reader", "clicks", "ops")
    }

    def puts(name: str, *topics: str) -> None:
        clients[name].put([Message(topic, b"v") for topic in topics])

    def reads(name: str, *topics: str) -> int:
        with clients[name].scan(topics=topics) as scanner:
            return len(list(scanner))

    def forbidden(call: Callable[..., object], *given: str) -> bool:
        try:
            call(*given)
        except NotAllowedError as exc:
            _, said, needed = str(exc).partition("no access rule allows this principal to ")
            assert said
            assert ("publish" if call is puts else "read") in needed
            return exc.outcome is Outcome.NOT_APPLIED
        return False

    puts("ops", "clicks", "views")
    assert reads("ops") == 2
    with caplog.at_level(logging.WARNING, "hqueue.audit"):
        for name in ("loader", "reader", "clicks"):
            assert forbidden(puts, name, "clicks")
            assert forbidden(reads, name)
    lines = audit(caplog, logging.WARNING)
    assert len(lines) >= 6
    assert all('allowed="no"' in line and 'queue="q"' in line for line in lines)
    scene.change("grant", "loader", "publish", queue=QUEUE, topic="clicks*")
    scene.change("grant", "reader", "read", queue=QUEUE)
    scene.change("grant", "clicks", "read", queue="q*", topic="clicks")
    wait_for(lambda: not forbidden(reads, "clicks", "clicks"), "the API follows the changes")
    puts("loader", "clicks", "clicks-2")
    assert forbidden(puts, "loader", "clicks", "views")
    assert forbidden(reads, "loader")
    assert reads("reader") == 4
    assert reads("clicks", "clicks") == 2
    assert forbidden(reads, "clicks")
    assert forbidden(reads, "clicks", "clicks", "views")
    assert forbidden(puts, "reader", "clicks")
    scene.change("revoke", "reader", "read", queue=QUEUE)
    wait_for(lambda: forbidden(reads, "reader"), "the right is gone")


def test_a_scanner_of_the_thrift_api_ends_when_the_right_is_gone(scene: RuledHubs) -> None:
    hub = scene.hub(**RULES, api_port=0)
    scene.change("grant", "reader", "read", queue=QUEUE)
    scene.queue.put([Message("t", b"v")] * 9)
    api = hub.hub.api
    assert api is not None
    with scene.calls("reader", api.address, SERVICE) as calls:

        def is_open() -> Any:
            with contextlib.suppress(API.TIllegalArgument):
                return calls.messageScannerOpen(QUEUE, 0, API.TMessageScan())

        scanner = wait_for(is_open, "the API follows the change")
        calls.messageScannerGetList(scanner, 1)
        scene.change("revoke", "reader", "read", queue=QUEUE)
        wait_for(lambda: not is_open(), "the right is gone")
        with pytest.raises(API.TIllegalArgument, match="no access rule"):
            calls.messageScannerGet(scanner)


def test_a_queue_has_one_name_whatever_a_caller_calls_it(scene: RuledHubs) -> None:
    scene.hub(**RULES, api_port=0)
    scene.change("grant", "loader", "publish,read", queue="d*")
    queue = scene.connect("loader", queue="default:q").queue()
    with pytest.raises(NotAllowedError, match="no access rule"):
        queue.put(Message("t", b"v"))
