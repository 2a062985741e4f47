"""Hubs with certificates on both sides, over memory: who may do what, by the proven principal."""

from __future__ import annotations

import contextlib
import http.client
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Message, MessageID, NotAllowedError, Outcome
from hqueue.metadata.managers import (
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
)
from hqueue.net.contexts import TlsContexts
from hqueue.net.tls_files import TlsFiles
from tests.support.certificates import Certificates
from tests.support.hub_faces import connected
from tests.support.hubs import HubThread
from tests.support.secured_hubs import QUEUE, SecuredHubs
from tests.support.waiting import wait_for

Connect = Callable[..., Any]
both_faces = pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "asyncio"])


@pytest.fixture
def scene(certificates: Certificates) -> Iterator[SecuredHubs]:
    with contextlib.ExitStack() as stack:
        yield SecuredHubs(stack, certificates)


def audit(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    """What the audit's log says at `level` or above."""
    return [
        each.getMessage()
        for each in caplog.records
        if each.name == "hqueue.audit" and each.levelno >= level
    ]


@both_faces
def test_the_acl_decides_by_principals_and_names_prove_nothing(
    scene: SecuredHubs, in_loop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene.hub()
    loader = scene.connect("loader", in_loop=in_loop).topic("t")
    reader = scene.connect("reader", in_loop=in_loop, publisher="loader").topic("t")
    ops = scene.connect("ops", in_loop=in_loop).topic("t")
    with caplog.at_level(logging.INFO, "hqueue.audit"):
        ops.set_acl(publish=["loader"], subscribe=["reader"], manage=[])
        loader.publish(b"one")
        for refused in (
            lambda: reader.publish(b"two"),
            reader.delete,
            lambda: loader.set_acl(publish=["loader", "reader"]),
            lambda: scene.connect("reader", publisher="ops").topic("new").publish(b"x"),
        ):
            with pytest.raises(NotAllowedError) as caught:
                refused()
            assert caught.value.outcome is Outcome.NOT_APPLIED
        assert ops.delete()
    lines = audit(caplog)
    assert [line.split(" ")[0:3:2] for line in lines] == [
        ['who="ops"', 'action="acl"'],
        ['who="reader"', 'action="publish"'],
        ['who="reader"', 'action="delete"'],
        ['who="loader"', 'action="acl"'],
        ['who="reader"', 'action="publish"'],
        ['who="ops"', 'action="delete"'],
    ]
    assert ['allowed="no"' in line for line in lines] == [False, *[True] * 4, False]
    assert 'topic="t" name="loader" allowed="no"' in lines[1]
    assert all('from="127.0.0.1"' in line for line in lines)


@both_faces
def test_a_publishers_name_belongs_to_its_namesake(scene: SecuredHubs, in_loop: bool) -> None:
    scene.hub(authorizer="all", names="loader:batch-*, *:shared")

    def publishes(name: str, principal: str) -> Any:
        topic = scene.connect(principal, in_loop=in_loop, publisher=name).topic("t")
        return topic.publish_idempotent([b"v"], sequence_number=0)

    for name in ("loader", "batch-7", "shared"):
        publishes(name, "loader")
    for name in ("reader", "batch"):
        with pytest.raises(NotAllowedError, match="may not use this name"):
            publishes(name, "loader")
    publishes("loader", "ops")


@both_faces
def test_a_subscription_belongs_to_the_principal_that_created_it(
    scene: SecuredHubs, in_loop: bool
) -> None:
    for _ in range(2):
        scene.hub(authorizer="all", names="helper:report-*,reader:report-1", balance_ms=3_600_000)
    got: list[bytes] = []
    loader, reader, helper, ops = (
        scene.connect(name, in_loop=in_loop).topic("t")
        for name in ("loader", "reader", "helper", "ops")
    )
    loader.publish(b"zero")
    (owner,) = (hub for hub in scene.hubs if "t" in hub.owns(QUEUE))
    with reader.subscribe("report-1", lambda messages: got.extend(m.value for m in messages)):
        loader.publish(b"one")
        wait_for(lambda: got == [b"one"], "it came")
        taking = [
            lambda: loader.subscribe("report-1", print),
            lambda: scene.consume("loader", "t", "report-1", at=owner),
            lambda: loader.unsubscribe("report-1"),
        ]
        for take in taking:
            with pytest.raises(NotAllowedError, match="may not use this name"):
                take()
    for take in taking:  # Now that it is not attached.
        with pytest.raises(
            NotAllowedError, match="with 'hqueue access' or the hub's setting 'names'"
        ):
            take()
    owner.terminate()  # The other one takes the topic over.
    (owner,) = (hub for hub in scene.hubs if hub.alive)
    for take in taking:
        with pytest.raises(NotAllowedError, match="may not use this name"):
            take()
    with helper.subscribe("report-1", lambda messages: got.extend(m.value for m in messages)):
        loader.publish(b"two")
        wait_for(lambda: got == [b"one", b"two"], "to whom the setting gives the name")
    ops.unsubscribe("report-1")
    for name in ("report-1", "reader"):  # Its owner may come later.
        with pytest.raises(NotAllowedError, match="may not use this name"):
            loader.subscribe(name, print)
    with loader.subscribe("loader", print):
        pass


@both_faces
def test_a_subscription_without_an_owner_is_its_namesakes(
    scene: SecuredHubs, in_loop: bool
) -> None:
    hub = scene.hub(authorizer="all")
    reader = scene.connect("reader", in_loop=in_loop).topic("t")
    with reader.subscribe("reader", print):
        pass
    records = hub.hosted(QUEUE).metadata.subscriptions
    found = records.read_subscription_data("t", "reader").result(20)
    assert found is not None
    assert found.value.owner is None
    earlier = SubscriptionData(SubscriptionPreferences(), SubscriptionState(MessageID(5)))
    records.create_subscription_data("t", "old", earlier).result(20)
    with pytest.raises(NotAllowedError):
        reader.subscribe("old", print)
    old = scene.connect("old", in_loop=in_loop).topic("t")
    with old.subscribe("old", print):
        pass


@both_faces
def test_messages_come_to_the_principal_that_subscribed_and_from_hubs_alone(
    scene: SecuredHubs, in_loop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene.hub(authorizer="all")
    got: list[bytes] = []
    topic = scene.connect("reader", in_loop=in_loop).topic("t")
    topic.publish(b"before")
    with topic.subscribe("reader", lambda messages: got.extend(m.value for m in messages)):
        topic.publish_many([b"a", b"b" * 300_000])
        wait_for(lambda: len(got) == 2, "they came")
    distrusts = scene.connect("wary", in_loop=in_loop, delivery_principals="worker").topic("t")
    with (
        caplog.at_level(logging.WARNING, "hqueue.audit"),
        distrusts.subscribe("wary", lambda messages: got.extend(m.value for m in messages)),
    ):
        topic.publish(b"never")
        wait_for(lambda: audit(caplog, logging.WARNING), "the hub is refused")
    assert (
        'who="hub" from="127.0.0.1" action="connect" port="subscriber"'
        in audit(caplog, logging.WARNING)[0]
    )
    assert "never" not in str(got)


def test_a_hub_delivers_to_no_other_principal_at_a_subscriptions_address(
    scene: SecuredHubs, caplog: pytest.LogCaptureFixture
) -> None:
    hub = scene.hub(authorizer="all")
    got: list[bytes] = []
    owner = scene.connect("reader").topic("t")
    with owner.subscribe("reader", lambda messages: got.extend(m.value for m in messages)):
        session = hub.hosted(QUEUE).subscriptions.sessions.find("t", "reader")
        assert session is not None
        thief = session.delivery._replace(principal="thief")

        async def steal() -> None:
            session.set_delivery(thief)

        hub.run(steal())
        with caplog.at_level(logging.WARNING):
            owner.publish(b"secret")
            refused = "it has the certificate of 'reader', but 'thief' subscribed it"
            wait_for(lambda: refused in caplog.text, "it is not delivered")
    assert got == []


@both_faces
def test_who_is_not_let_in_learns_why_at_once_and_nothing_was_done(
    scene: SecuredHubs, in_loop: bool
) -> None:
    hub = scene.hub(authorizer="all", api_port=0)
    scene.certificates.authority("others")
    began_s = time.monotonic()
    for name, made in (("forger", {"authority": "others"}), ("late", {"days": -1})):
        client = scene.connect(name, in_loop=in_loop, **made)
        for refused in (
            lambda: client.topic("t").publish(b"x"),  # noqa: B023
            lambda: client.topic("t").subscribe(name, print),  # noqa: B023
            lambda: client.queue().put([Message("t", b"x")]),  # noqa: B023
        ):
            with pytest.raises(NotAllowedError, match="did not accept this client") as caught:
                refused()
            assert caught.value.outcome is Outcome.NOT_APPLIED
    assert time.monotonic() - began_s < 10, "a refusal is final"
    with scene.queue.scan() as scanner:
        assert list(scanner) == []
    assert hub.owns(QUEUE) == set()
    plain = scene.stack.enter_context(connected([hub.address], in_loop=in_loop, queue=QUEUE))
    for refused in (
        lambda: plain.topic("t").publish(b"x"),
        lambda: plain.queue().put([Message("t", b"x")]),
    ):
        with pytest.raises(NotAllowedError, match="speaks TLS here, and this client") as caught:
            refused()
        assert caught.value.outcome is Outcome.NOT_APPLIED
    nameless = scene.connect("nameless", in_loop=in_loop, subject="/O=Tests")
    with pytest.raises(NotAllowedError, match="no rule makes a principal") as caught:
        nameless.topic("t").publish(b"x")
    assert caught.value.outcome is Outcome.NOT_APPLIED


def test_a_hub_that_proves_nothing_gets_no_call(scene: SecuredHubs) -> None:
    hub = scene.hub()
    strange = scene.certificates.authority("strange")
    with pytest.raises(NotAllowedError, match="certificate was not accepted") as caught:
        scene.connect("loader", tls_ca=str(strange)).topic("t").publish(b"x")
    assert "tls_ca" in caught.value.text
    assert hub.owns(QUEUE) == set()


@both_faces
def test_the_thrift_api_is_for_its_principals(scene: SecuredHubs, in_loop: bool) -> None:
    scene.hub(authorizer="all", api_port=0, api_principals="loader")
    queue = scene.connect("loader", in_loop=in_loop).queue()
    queue.put([Message("t", b"x" * 200_000)] * 3)
    with queue.scan() as scanner:
        assert [len(each.value) for each in scanner] == [200_000] * 3
    with pytest.raises(NotAllowedError, match="may not call the port: see api_principals"):
        scene.connect("reader", in_loop=in_loop).queue().put([Message("t", b"x")])


def test_metrics_and_health_are_for_their_principals(scene: SecuredHubs) -> None:
    hub = scene.hub(metrics_principals="prometheus")
    port = hub.hub.health_port

    def get(name: str | None, path: str) -> tuple[int, str]:
        found = scene.certificates.of(name or "prometheus")
        files = TlsFiles(found["tls_ca"], found["tls_certificate"] if name else None)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=20, context=TlsContexts(files).current()
        )
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    assert get("prometheus", "/health")[0] == 200
    status, text = get("reader", "/metrics")
    assert status == 403
    assert "see metrics_principals" in text
    with pytest.raises(OSError, match=r"certificate|alert"):
        get(None, "/metrics")
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(plain):
        plain.request("GET", "/health")
        with pytest.raises((OSError, http.client.HTTPException)):
            plain.getresponse()
    status, text = get("prometheus", "/metrics")
    assert 'hqueue_refused_connections_total{port="metrics",reason="handshake"} 2.0' in text
    assert 'hqueue_refused_connections_total{port="metrics",reason="principal"} 1.0' in text


@pytest.mark.parametrize("names", ["loader", ":x", "a:", "a:b c", "a b:c"])
def test_rules_of_names_are_checked_where_the_hub_is_made(names: str) -> None:
    with pytest.raises(hqueue.SettingsError, match="principal:name"):
        HubThread(None, QUEUE, names=names)  # type: ignore[arg-type]
