"""Quotas of hubs and of the Thrift API, over memory: clients obey, and others don't notice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

import hqueue
from hqueue import HubUnavailableError, Message, Outcome
from hqueue_workers import WorkerSettings
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.hubs import HubThread
from tests.support.secured_hubs import SecuredHubs
from tests.unit.workers.hub.test_hub_security import audit, both_faces

QUEUE = "q"


@pytest.fixture
def scene(certificates: Certificates) -> Iterator[SecuredHubs]:
    with contextlib.ExitStack() as stack:
        yield SecuredHubs(stack, certificates)


def refusals(hub: HubThread) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for family in hub.hub.metrics.registry.collect():
        if family.name == "hqueue_quota_refusals":
            for sample in family.samples:
                found[sample.labels["port"], sample.labels["limit"]] = sample.value
    return found


@both_faces
def test_a_client_over_its_quota_waits_and_nothing_is_lost_or_twice(
    scene: SecuredHubs, in_loop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    hub = scene.hub(authorizer="all", quotas="ops:calls=none, *:calls=20")
    loader = scene.connect("loader", in_loop=in_loop).topic("t")
    ops = scene.connect("ops", in_loop=in_loop).topic("t")
    began_s = time.monotonic()
    for number in range(40):
        loader.publish(b"%d" % number)
        ops.publish(b"ops")
    took_s = time.monotonic() - began_s
    assert took_s >= 0.9, "20 at once, and 20 a second from then on"
    with scene.queue.scan() as scanner:
        values = [message.value for message in scanner if message.value != b"ops"]
    assert values == [b"%d" % number for number in range(40)]
    assert refusals(hub)["hub", "calls"] >= 1
    lines = [line for line in audit(caplog) if 'limit="calls"' in line]
    assert lines
    assert all('who="loader"' in line for line in lines)
    assert len(lines) <= 2 + took_s


@both_faces
def test_a_call_that_its_quota_does_not_allow_in_time_fails_at_once_and_never_ran(
    scene: SecuredHubs, in_loop: bool
) -> None:
    scene.hub(authorizer="all", api_port=0, quotas="*:bytes_in=1024")
    client = scene.connect("loader", in_loop=in_loop, operation_timeout_ms=5_000)
    topic, queue = client.topic("t"), client.queue()
    topic.publish(bytes(20_000))
    queue.put([Message("t", bytes(20_000))])
    for call in (lambda: topic.publish(b"late"), lambda: queue.put([Message("t", b"late")])):
        began_s = time.monotonic()
        with pytest.raises(HubUnavailableError, match="over its quota at the hub") as caught:
            call()
        assert caught.value.outcome is Outcome.NOT_APPLIED
        assert 10_000 < caught.value.retry_after_ms < 60_000  # type: ignore[operator]
        assert time.monotonic() - began_s < 4
    with scene.queue.scan() as scanner:
        assert [len(each.value) for each in scanner] == [20_000] * 2


@both_faces
def test_puts_and_scans_through_the_thrift_api_obey(scene: SecuredHubs, in_loop: bool) -> None:
    hub = scene.hub(authorizer="all", api_port=0, quotas="*:calls=10")
    queue = scene.connect("loader", in_loop=in_loop).queue()
    for number in range(20):
        queue.put([Message("t", b"%d" % number)])
    with queue.scan() as scanner:
        assert sorted(int(each.value) for each in scanner) == list(range(20))
    assert refusals(hub)["api", "calls"] >= 1


def test_a_subscriber_over_its_quota_keeps_its_session_and_gets_everything(
    scene: SecuredHubs,
) -> None:
    scene.hub(authorizer="all", quotas="reader:calls=1")
    got: list[bytes] = []
    loader, reader = scene.connect("loader").topic("t"), scene.connect("reader")
    with reader.topic("t").subscribe("reader", lambda some: got.extend(m.value for m in some)):
        for number in range(10):
            loader.publish(b"%d" % number)
        ends_s = time.monotonic() + 20
        while len(got) < 10 and time.monotonic() < ends_s:
            time.sleep(0.01)
        (subscription,) = reader.subscriptions
        assert not subscription.ended
    assert got == [b"%d" % number for number in range(10)]


def test_a_principal_has_as_many_subscriptions_and_sessions_as_its_quota_allows(
    scene: SecuredHubs, caplog: pytest.LogCaptureFixture
) -> None:
    names = "reader:reader-*, other:reader-*"
    quotas = "reader:subscriptions=3 sessions=2"
    hub = scene.hub(authorizer="all", names=names, quotas=quotas)
    options = {"operation_timeout_ms": 1_000}
    clients = [scene.connect("reader", **options) for _ in range(3)]
    first = [clients[0].topic(f"t{n}").subscribe("reader", print) for n in range(2)]
    clients[1].topic("t").subscribe("reader-1", print)
    with pytest.raises(HubUnavailableError, match="as many subscriptions as its quota") as caught:
        clients[1].topic("t").subscribe("reader-2", print)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert scene.connect("other").topic("t").subscribe("reader-3", print)
    first[0].close()
    with pytest.raises(HubUnavailableError, match="as many sessions as its quota"):
        clients[2].topic("t").subscribe("reader-2", print)
    assert clients[1].topic("t").subscribe("reader-2", print)
    assert hub.hosted(QUEUE).subscriptions.sessions.attached_by == {"reader": 3, "other": 1}
    assert {limit for port, limit in refusals(hub)} == {"subscriptions", "sessions"}
    assert (
        'who="reader" from="127.0.0.1" action="call" port="hub" limit="subscriptions"'
        in "".join(audit(caplog))
    )


def test_a_principal_creates_as_many_topics_and_subscriptions_an_hour_as_its_quota_allows(
    scene: SecuredHubs,
) -> None:
    hub = scene.hub(
        authorizer="all", names="reader:*", quotas="reader:creations=2", session_ms=60_000
    )
    reader, loader = scene.connect("reader"), scene.connect("loader")
    for number in range(5):
        loader.topic(f"t{number}").publish(b"v")
    reader.topic("t0").subscribe("reader", print)
    reader.topic("t1").subscribe("another", print)
    with pytest.raises(HubUnavailableError, match="over its quota at the hub") as caught:
        reader.topic("t2").subscribe("third", print)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert caught.value.retry_after_ms == pytest.approx(1_800_000, rel=0.01)
    for name in ("new0", "new1"):
        reader.topic(name).publish(b"v")
    with pytest.raises(HubUnavailableError, match="over its quota at the hub"):
        reader.topic("new2").publish(b"v")
    assert reader.topic("t3").publish(b"v")
    assert refusals(hub) == {("hub", "creations"): 2}


def test_without_certificates_each_address_has_a_quota(caplog: pytest.LogCaptureFixture) -> None:
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(MemoryBackend().apart(2_000).connect())
        client.create_queue(QUEUE, partitions=1)
        hub = stack.enter_context(HubThread(client, QUEUE, quotas="anonymous:calls=5"))
        options: dict[str, Any] = {"queue": QUEUE, "operation_timeout_ms": 20_000}
        for name in ("a", "b"):
            own = stack.enter_context(hqueue.connect_hubs(hub.address, publisher=name, **options))
            for _ in range(4):
                own.topic("t").publish(b"v")
        assert refusals(hub)["hub", "calls"] >= 1
    assert any('who="anonymous" from="127.0.0.1" action="call"' in each for each in audit(caplog))


@pytest.mark.parametrize("quotas", ["calls=5", "loader:calls=0"])
def test_rules_are_checked_where_a_hub_or_a_worker_is_made(quotas: str) -> None:
    with pytest.raises(hqueue.SettingsError, match="principal:limit=number"):
        HubThread(None, QUEUE, quotas=quotas)  # type: ignore[arg-type]
    with pytest.raises(hqueue.SettingsError, match="principal:limit=number"):
        WorkerSettings(quotas=quotas)
