"""Hubs and their clients while a cluster is moved to TLS: each speaks it to whom it can."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from hqueue import Message, MessageID, NotAllowedError
from hqueue.metadata.managers import SubscriptionData, SubscriptionPreferences, SubscriptionState
from hqueue.net.open_ports import SAID
from tests.support.certificates import Certificates
from tests.support.hub_faces import connected
from tests.support.hubs import HubThread
from tests.support.secured_hubs import QUEUE, RULES, RuledHubs
from tests.support.waiting import wait_for

both_faces = pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "asyncio"])
MODES = ("off", "optional", "required")


class Scene(RuledHubs):
    """Hubs and clients that speak TLS or not."""

    def given(self, name: str, mode: str) -> dict[str, Any]:
        """The settings of a process."""
        if mode == "off":
            return {}
        believed = "hub,anonymous" if mode == "optional" else "hub"
        return {
            **self.certificates.of(name),
            "tls_optional": mode == "optional",
            "delivery_principals": believed,
        }

    def serve(self, mode: str, **settings: Any) -> HubThread:
        """Start another hub."""
        client = self.open(**self.given("hub", mode))
        running = HubThread(client, QUEUE, **{"api_port": 0, "balance_ms": 3_600_000, **settings})
        self.hubs.append(self.stack.enter_context(running))
        return running

    def call(self, name: str, mode: str, *, in_loop: bool = False) -> Any:
        """A client of all hubs."""
        hubs = [hub.address for hub in self.hubs if hub.alive]
        return self.stack.enter_context(
            connected(
                hubs,
                in_loop=in_loop,
                queue=QUEUE,
                publisher=name,
                operation_timeout_ms=20_000,
                **self.given(name, mode),
            )
        )


@pytest.fixture
def scene(certificates: Certificates) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack, certificates)


@both_faces
@pytest.mark.parametrize(
    ("hub_mode", "mode"),
    [(hub, client) for hub in MODES for client in MODES if {hub, client} != {"off", "required"}],
)
def test_a_hub_and_a_client_that_are_a_step_apart_at_most_serve_each_other(
    scene: Scene, in_loop: bool, hub_mode: str, mode: str
) -> None:
    """They publish, deliver, and call the Thrift API; by TLS if both can."""
    hub = scene.serve(hub_mode)
    client = scene.call("reader", mode, in_loop=in_loop)
    got: list[bytes] = []
    topic = client.topic("t")
    with topic.subscribe("reader", lambda messages: got.extend(m.value for m in messages)):
        topic.publish(b"small")
        topic.publish_idempotent([b"x" * 300_000], sequence_number=1)
        wait_for(lambda: len(got) == 2, "they came")
    queue = client.queue()
    queue.put([Message("u", b"by the API")])
    with queue.scan(topics=["u"]) as scanner:
        assert [each.value for each in scanner] == [b"by the API"]
    in_clear = hub.hub.metrics.registry.get_sample_value(
        "hqueue_plaintext_connections_total", {"port": "hub"}
    )
    if hub_mode == "optional":
        assert bool(in_clear) == (mode == "off")
    else:
        assert in_clear is None


@both_faces
def test_a_cluster_is_moved_to_tls_while_it_runs(scene: Scene, in_loop: bool) -> None:
    """The hubs, and then the clients, are started again in another mode, one after the other. Those
    that were started last are never more than a step ahead.
    """
    got: list[bytes] = []
    sent: list[bytes] = []
    mode_of = {"publisher": "off", "subscriber": "off"}
    hubs = [scene.serve("off"), scene.serve("off")]

    def publishes() -> None:
        client = scene.call("loader", mode_of["publisher"], in_loop=in_loop)
        for topic in ("a", "b"):
            sent.append(str(len(sent)).encode())
            client.topic(topic).publish(sent[-1])

    def subscribes() -> contextlib.ExitStack:
        client = scene.call("reader", mode_of["subscriber"], in_loop=in_loop)
        attached = contextlib.ExitStack()
        for topic in ("a", "b"):
            attached.enter_context(
                client.topic(topic).subscribe(
                    "reader", lambda messages: got.extend(m.value for m in messages)
                )
            )
        return attached

    def hub(number: int, mode: str) -> None:
        hubs[number].terminate()
        hubs[number] = scene.serve(mode)

    def client(name: str, mode: str) -> None:
        mode_of[name] = mode

    steps = [
        lambda: hub(0, "optional"),
        lambda: client("publisher", "optional"),
        lambda: hub(1, "optional"),
        lambda: client("subscriber", "optional"),
        lambda: hub(0, "required"),
        lambda: client("publisher", "required"),
        lambda: client("subscriber", "required"),
        lambda: hub(1, "required"),
    ]
    for step in steps:
        with subscribes():
            publishes()
            wait_for(lambda: set(sent) <= set(got), "they came")
        step()
    with subscribes():
        publishes()
        wait_for(lambda: set(sent) <= set(got), "they came")
    with pytest.raises(NotAllowedError, match="speaks TLS here, and this client"):
        scene.call("loader", "off", in_loop=in_loop).topic("a").publish(b"x")


@both_faces
def test_a_caller_without_tls_has_the_rights_of_anonymous_alone(
    scene: Scene, in_loop: bool
) -> None:
    scene.change("grant", "reader", "create,publish,subscribe")
    scene.change("grant", "anonymous", "publish", topic="open")
    scene.serve("optional", **RULES)
    proven, unproven = (scene.call("reader", mode, in_loop=in_loop) for mode in ("required", "off"))
    proven.topic("open").publish(b"v")
    proven.topic("closed").publish(b"v")
    unproven.topic("open").publish(b"v")
    for refused in (
        lambda: unproven.topic("closed").publish(b"v"),
        lambda: unproven.topic("open").subscribe("reader", print),
        lambda: unproven.topic("open").publish_idempotent([b"v"], sequence_number=1),
        lambda: unproven.queue().put([Message("closed", b"v")]),
    ):
        with pytest.raises(NotAllowedError):
            refused()
    unproven.queue().put([Message("open", b"v")])


@both_faces
def test_by_an_acl_a_caller_without_tls_is_anonymous_whatever_it_calls_itself(
    scene: Scene, in_loop: bool
) -> None:
    scene.serve("optional", authorizer="acl", creators="loader", administrators="loader")
    proven, unproven = (
        scene.call("loader", mode, in_loop=in_loop).topic("t") for mode in ("required", "off")
    )
    proven.publish(b"v")
    unproven.publish(b"v")  # Everybody may, as long as the topic has no ACL.
    proven.set_acl(publish=["loader"])
    with pytest.raises(NotAllowedError):
        unproven.publish(b"v")
    proven.set_acl(publish=["anonymous"])
    unproven.publish(b"v")


@both_faces
def test_a_caller_without_tls_takes_no_subscription_that_a_principal_has_created(
    scene: Scene, in_loop: bool
) -> None:
    hub = scene.serve("optional", names="reader:report-*")
    proven, unproven = (
        scene.call("reader", mode, in_loop=in_loop).topic("t") for mode in ("required", "off")
    )
    with proven.subscribe("report-1", print):
        pass
    for refused in (
        lambda: unproven.subscribe("report-1", print),
        lambda: unproven.unsubscribe("report-1"),
    ):
        with pytest.raises(NotAllowedError, match="may not use this name"):
            refused()
    records = hub.hosted(QUEUE).metadata.subscriptions
    earlier = SubscriptionData(SubscriptionPreferences(), SubscriptionState(MessageID(5)))
    records.create_subscription_data("t", "earlier", earlier).result(20)
    for name in ("earlier", "new"):
        with unproven.subscribe(name, print):
            pass
        found = records.read_subscription_data("t", name).result(20)
        assert found is not None
        assert found.value.owner is None, "the principal of this name may have it once there is one"


@both_faces
def test_messages_of_a_principals_subscription_are_not_delivered_without_tls(
    scene: Scene, in_loop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even if what listens at the subscriber's address speaks none."""
    hub = scene.serve("optional")
    got: list[bytes] = []
    topic = scene.call("reader", "off", in_loop=in_loop).topic("t")
    with topic.subscribe("reader", lambda messages: got.extend(m.value for m in messages)):
        session = hub.hosted(QUEUE).subscriptions.sessions.find("t", "reader")
        assert session is not None

        async def prove() -> None:
            session.set_delivery(session.delivery._replace(principal="reader"))

        hub.run(prove())
        with caplog.at_level(logging.WARNING):
            topic.publish(b"secret")
            wait_for(
                lambda: "it does not speak TLS, but 'reader' subscribed it with TLS" in caplog.text,
                "it is not delivered",
            )
    assert got == []


@pytest.fixture
def nothing_said() -> Iterator[None]:
    before, SAID[:] = SAID[:], []
    yield
    SAID[:] = before


@pytest.mark.usefixtures("nothing_said")
def test_that_callers_without_tls_are_served_is_said_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "hqueue.net"):
        scene.serve("optional")
    (line,) = [each for each in caplog.messages if each.startswith("optional: ")]
    assert "serves callers without TLS, too" in line
    assert "set tls_optional to false when all callers speak TLS" in line
