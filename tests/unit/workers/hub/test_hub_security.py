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
from hqueue import HubUnavailableError, Message, NotAllowedError, Outcome
from hqueue.errors import InvalidInputError
from hqueue.net.contexts import TlsContexts, TlsFiles
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.hub_faces import connected
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

QUEUE = "q"
ACL = {"authorizer": "acl", "creators": "loader,ops", "administrators": "ops"}

Connect = Callable[..., Any]
both_faces = pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "asyncio"])


class Scene:
    """Hubs with certificates, and their clients."""

    def __init__(self, stack: contextlib.ExitStack, certificates: Certificates) -> None:
        self.stack = stack
        self.certificates = certificates
        self.backend = MemoryBackend().apart(2_000)
        self.queue = stack.enter_context(self.backend.connect()).create_queue(QUEUE, partitions=2)
        self.hubs: list[HubThread] = []

    def hub(self, **settings: Any) -> HubThread:
        client = self.backend.connect(**self.certificates.of("hub"))
        running = HubThread(self.stack.enter_context(client), QUEUE, **{**ACL, **settings})
        self.hubs.append(self.stack.enter_context(running))
        return running

    def connect(self, name: str, *, in_loop: bool = False, **options: Any) -> Any:
        made = {each: options.pop(each) for each in ("authority", "days") if each in options}
        given = {
            **self.certificates.of(name, **made),
            "queue": QUEUE,
            "operation_timeout_ms": 20_000,
            "delivery_principals": "hub",
            **options,
        }
        hubs = [hub.address for hub in self.hubs]
        return self.stack.enter_context(connected(hubs, in_loop=in_loop, **given))


@pytest.fixture
def scene(certificates: Certificates) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack, certificates)


def audit(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "hqueue.audit"]


@both_faces
def test_the_acl_decides_by_principals_and_names_prove_nothing(
    scene: Scene, in_loop: bool, caplog: pytest.LogCaptureFixture
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
def test_a_name_that_keeps_something_belongs_to_its_principal(scene: Scene, in_loop: bool) -> None:
    scene.hub(authorizer="all", names="loader:batch-*, *:shared")

    def publishes(name: str, principal: str) -> Any:
        topic = scene.connect(principal, in_loop=in_loop, publisher=name).topic("t")
        return topic.publish_idempotent([b"v"], sequence_number=0)

    for name in ("loader", "batch-7", "shared"):
        publishes(name, "loader")
    for name in ("reader", "batch"):
        with pytest.raises(NotAllowedError, match="not one of this principal"):
            publishes(name, "loader")
    client = scene.connect("reader", in_loop=in_loop).topic("t")
    for name in ("loader", "batch-7"):
        with pytest.raises(NotAllowedError, match="setting names"):
            client.subscribe(name, lambda messages: None)
        with pytest.raises(NotAllowedError, match="setting names"):
            client.unsubscribe(name)
    with client.subscribe("reader", lambda messages: None):
        pass
    ops = scene.connect("ops", in_loop=in_loop).topic("t")
    ops.unsubscribe("reader")


@both_faces
def test_messages_come_to_the_principal_that_subscribed_and_from_hubs_alone(
    scene: Scene, in_loop: bool, caplog: pytest.LogCaptureFixture
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
        wait_for(lambda: audit(caplog), "the hub is refused")
    assert 'who="hub" from="127.0.0.1" action="connect" port="subscriber"' in audit(caplog)[0]
    assert "never" not in str(got)


def test_a_hub_delivers_to_no_other_principal_at_a_subscriptions_address(
    scene: Scene, caplog: pytest.LogCaptureFixture
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
            refused = "it has the certificate of 'reader', and 'thief' has subscribed"
            wait_for(lambda: refused in caplog.text, "it is not delivered")
    assert got == []


@both_faces
def test_who_is_not_let_in_learns_why_at_once_and_nothing_was_done(
    scene: Scene, in_loop: bool
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
    with pytest.raises(HubUnavailableError):
        plain.topic("t").publish(b"x")


def test_a_hub_that_proves_nothing_gets_no_call(scene: Scene) -> None:
    hub = scene.hub()
    strange = scene.certificates.authority("strange")
    with pytest.raises(NotAllowedError, match="certificate was not accepted") as caught:
        scene.connect("loader", tls_ca=str(strange)).topic("t").publish(b"x")
    assert "tls_ca" in caught.value.text
    assert hub.owns(QUEUE) == set()


@both_faces
def test_the_thrift_api_is_for_its_principals(scene: Scene, in_loop: bool) -> None:
    scene.hub(authorizer="all", api_port=0, api_principals="loader")
    queue = scene.connect("loader", in_loop=in_loop).queue()
    queue.put([Message("t", b"x" * 200_000)] * 3)
    with queue.scan() as scanner:
        assert [len(each.value) for each in scanner] == [200_000] * 3
    with pytest.raises(InvalidInputError, match="may not call the port: see api_principals"):
        scene.connect("reader", in_loop=in_loop).queue().put([Message("t", b"x")])


def test_metrics_and_health_are_for_their_principals(scene: Scene) -> None:
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
