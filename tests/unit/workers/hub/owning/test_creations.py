"""How many topics a caller may create, and what a hub does with one that creates more."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect

import pytest

import hqueue
from hqueue import BufferFullError, HubUnavailableError, Outcome
from hqueue.net.quotas import PortQuotas, QuotaRules
from hqueue_workers.hub.owning.creations import HOUR_MS, Creations
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.hub_command import hub as command
from hqueue_workers.node.api_settings import ApiSettings
from tests.support.backends import MemoryBackend
from tests.support.doubles import SteppedClock
from tests.support.hubs import HubThread

QUEUE = "q"


def created(limit: Creations, caller: str) -> int:
    """How many it may create now."""
    for count in range(1_000):
        try:
            limit.count(caller)
        except BufferFullError:
            return count
    raise AssertionError("it may create without an end")


@pytest.mark.parametrize("per_hour_max", [1, 7, 360])
def test_so_many_are_created_at_once_and_so_many_an_hour_from_then_on(per_hour_max: int) -> None:
    clock = SteppedClock()
    limit = Creations(per_hour_max, clock)
    assert created(limit, "me") == per_hour_max
    assert created(limit, "you") == per_hour_max, "each caller has its own"
    clock.now_ms += HOUR_MS / per_hour_max
    assert created(limit, "me") == 1
    clock.now_ms += 5 * HOUR_MS
    assert created(limit, "me") == per_hour_max


def test_an_address_has_its_bound_under_whatever_names_and_all_have_one_together() -> None:
    limit = Creations(10, SteppedClock())

    def made(host: str) -> int:
        for count in range(100):
            try:
                limit.count(f"{host}-{count}", host)
            except BufferFullError:
                return count
        raise AssertionError("it may create without an end")

    assert [made(f"10.0.0.{at}") for at in range(6)] == [40, 40, 40, 40, 0, 0]


def test_what_is_many_at_once_counts_as_many() -> None:
    limit = Creations(10, SteppedClock())
    limit.count("me", many=0)
    limit.count("me", many=7)
    with pytest.raises(BufferFullError):
        limit.count("me", many=4)
    limit.count("me", many=3)
    with pytest.raises(BufferFullError):
        limit.count("me")


def test_a_principal_with_a_quota_has_that_alone(caplog: pytest.LogCaptureFixture) -> None:
    clock = SteppedClock()
    quotas = PortQuotas("hub", QuotaRules("loader:creations=100"), clock)
    limit = Creations(10, clock, quotas=quotas)
    assert created(limit, "loader") == 100
    assert created(limit, "reader") == 10
    for number in range(200):
        with contextlib.suppress(BufferFullError):
            limit.count(f"reader{number}", "10.0.0.1")
    with pytest.raises(BufferFullError) as caught:
        limit.count("loader", "10.0.0.1")
    assert caught.value.retry_after_ms == HOUR_MS / 100
    clock.now_ms += HOUR_MS / 100
    limit.count("loader", "10.0.0.1")
    assert quotas.refused == {"creations": 2}
    assert 'who="loader" action="call" port="hub" limit="creations"' in caplog.text


def test_callers_that_are_as_if_they_had_created_nothing_are_forgotten() -> None:
    clock = SteppedClock()
    limit = Creations(100, clock, kept_min=8)
    assert created(limit, "busy") == 100
    for number in range(1_000):
        clock.now_ms += HOUR_MS / 1_000
        limit.count(f"caller{number}")
        assert limit.kept <= 32
    assert created(limit, "busy") == 100


def test_a_caller_that_creates_more_topics_than_it_may_is_refused_and_goes_on_with_those() -> None:
    backend = MemoryBackend().apart(10_000)
    with contextlib.ExitStack() as stack:
        connected = stack.enter_context(backend.connect())
        connected.create_queue(QUEUE, partitions=2)
        hub = stack.enter_context(HubThread(connected, QUEUE, topic_creations_per_hour_max=2))

        def client(publisher: str) -> hqueue.HubClient:
            return stack.enter_context(
                hqueue.connect_hubs(
                    hub.address, queue=QUEUE, publisher=publisher, operation_timeout_ms=1_000
                )
            )

        me, you = client("me"), client("you")
        me.topic("a").publish(b"v")
        me.topic("b").publish(b"v")
        with pytest.raises(HubUnavailableError) as caught:
            me.topic("c").publish(b"v")
        assert caught.value.outcome is Outcome.NOT_APPLIED
        with connected.topic_metadata(QUEUE) as metadata:
            assert metadata.persistence.read_topic_persistence_info("c").result(60) is None
        assert me.topic("a").publish(b"v")
        assert you.topic("c").publish(b"v")
        assert me.topic("c").publish(b"v")


def test_each_setting_of_a_hub_is_an_option_of_its_command() -> None:
    of_api = {field.name for field in dataclasses.fields(ApiSettings)}
    of_api -= {"api_port", "api_host", "api_principals", "metrics_principals", "quotas"}
    of_api -= {"authorizer", "administrators"}
    settings = {field.name for field in dataclasses.fields(HubSettings)} - of_api
    assert settings == set(inspect.signature(command).parameters) - {"context", "queues"}
