"""A hub that stands still: its calls and those that it would get go on elsewhere."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hqueue
from hqueue import Address, HubUnavailableError, Outcome
from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.steps import carry_out
from hqueue.topics.api_calls import POSITION_MS
from hqueue.topics.settings import HubClientSettings
from hqueue.topics.silence import AVOIDED_MS, HUBS_MAX, SilentHubs
from tests.support.doubles import SteppedClock
from tests.support.hub_faces import both_faces

IDL, API, STRUCTS = load("hub"), load("hqueue"), load("subscriber")
TIMEOUT_MS = 4_000
"""Of a call. A hub may be silent for a quarter of it."""
SOON_S = 3.5


class Hub:
    """A hub that can be stopped, as a process is: connections are accepted, and that is all."""

    def __init__(self, api: Any = API.HQueueService) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.published = 0
        self.described = 0
        self.positions = 0
        self.redirects_to: Hub | None = None
        self.takes_s = 0.0
        self.fails_later: Callable[[], Exception] | None = None
        """What further calls come to, after a first one that is done and whose answer is lost."""
        self._servers: list[ThriftServer] = []
        self.address = self._listen(IDL.HQueueHubService)
        self._api = self._listen(api)

    def apiAddress(self) -> str:  # noqa: N802  (the IDL's)
        self.goes_on.wait(60)
        return str(self._api)

    def getQueueLocations(self, queue: Any) -> Any:  # noqa: N802
        self.goes_on.wait(60)
        self.described += 1
        return [API.TQueueLocation(), API.TQueueLocation()]

    def currentPosition(self, queue: Any) -> Any:  # noqa: N802
        self.goes_on.wait(60)
        self.positions += 1
        return STRUCTS.TMessageID(7, 0)

    def put(self, put: Any) -> Any:
        self._serve()
        return API.TPutAnswer(STRUCTS.TMessageID(7, 0), len(put.messages))

    def publish(self, queue: Any, publisher: Any, topic: Any, message: Any, again: Any) -> Any:
        self._serve()
        return IDL.TPublished(STRUCTS.TMessageID(7, self.published), 0, 1)

    def publishOnce(  # noqa: N802, PLR0917  (the IDL's)
        self, queue: Any, by: Any, topic: Any, messages: Any, number: Any, since: Any, again: Any
    ) -> Any:
        published = self.publish(queue, by, topic, None, again)
        return IDL.TPublishedOnce(0, published, published.id)

    def close(self) -> None:
        self.goes_on.set()
        for server in self._servers:
            server.close(1_000)

    def _listen(self, service: Any) -> Address:
        listener = socket.create_server(("127.0.0.1", 0))
        server = ThriftServer(
            service,
            self,
            listener,
            threads=8,
            connections_max=64,
            call_bytes_max=2**20,
            idle_ms_max=10_000,
        )
        self._servers.append(server)
        server.start()
        return Address(*listener.getsockname())

    def _serve(self) -> None:
        self.goes_on.wait(60)
        time.sleep(self.takes_s)
        if self.redirects_to is not None:
            raise IDL.TRedirect(self.redirects_to.address.host, self.redirects_to.address.port)
        if self.fails_later is not None and self.published:
            raise self.fails_later()
        self.published += 1
        if self.fails_later is not None:
            raise RuntimeError("the answer is lost")


Make = Callable[[], Hub]


@pytest.fixture
def make() -> Iterator[Make]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(Hub()))


@contextlib.contextmanager
def client_of(*hubs: Hub) -> Iterator[hqueue.HubClient]:
    addresses = [hub.address for hub in hubs]
    with hqueue.connect_hubs(
        addresses, queue="q", publisher="me", operation_timeout_ms=TIMEOUT_MS
    ) as client:
        yield client


@both_faces
def test_what_is_published_once_goes_on_at_another_hub_and_the_silent_one_is_left_alone(
    make: Make,
) -> None:
    stopped, other = make(), make()
    with client_of(stopped, other) as client:
        stopped.goes_on.clear()
        began_s = time.monotonic()
        for number in range(30):
            client.topic(f"t{number}").publish_idempotent([b"v"], sequence_number=number)
        assert time.monotonic() - began_s < SOON_S
    assert other.published == 30


@both_faces
def test_a_publish_to_a_silent_hub_fails_soon_and_the_next_one_goes_elsewhere(make: Make) -> None:
    stopped, other = make(), make()
    with client_of(stopped, other) as client:
        stopped.goes_on.clear()
        began_s = time.monotonic()
        with contextlib.suppress(HubUnavailableError):
            for number in range(40):
                client.topic(f"u{number}").publish(b"v")
        assert time.monotonic() - began_s < SOON_S
        began_s = time.monotonic()
        for number in range(40):
            client.topic(f"v{number}").publish(b"v")
        assert time.monotonic() - began_s < 1


@both_faces
def test_what_became_of_a_publish_to_a_silent_hub_is_unknown(make: Make) -> None:
    stopped = make()
    with client_of(stopped) as client:
        stopped.goes_on.clear()
        began_s = time.monotonic()
        with pytest.raises(HubUnavailableError) as raised:
            client.topic("t").publish(b"v")
        assert time.monotonic() - began_s < SOON_S
        assert raised.value.outcome is Outcome.UNKNOWN


@both_faces
def test_a_hub_that_takes_long_over_a_call_and_answers_others_is_waited_for(make: Make) -> None:
    slow = make()
    slow.takes_s = 0.7 * TIMEOUT_MS / 1e3
    with client_of(slow) as client:
        client.topic("t").publish(b"v")
    assert slow.published == 1


@both_faces
def test_a_redirect_to_a_silent_hub_is_passed_by_as_soon_as_another_has_the_topic(
    make: Make,
) -> None:
    stopped, other = make(), make()
    stopped.goes_on.clear()
    other.redirects_to = stopped
    taken = threading.Timer(1.5, lambda: setattr(other, "redirects_to", None))
    with client_of(other) as client:
        taken.start()
        began_s = time.monotonic()
        client.topic("t").publish_idempotent([b"v"], sequence_number=0)
        assert time.monotonic() - began_s < SOON_S
    taken.join()


@both_faces
def test_one_that_is_back_is_asked_and_then_called_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hqueue.topics.silence.AVOIDED_MS", 200.0)
    only = make()
    with client_of(only) as client:
        only.goes_on.clear()
        with pytest.raises(HubUnavailableError):
            client.topic("t").publish(b"v")
        only.goes_on.set()
        client.topic("t").publish(b"v")


@both_faces
@pytest.mark.parametrize(
    "then",
    [
        lambda: IDL.TUnavailable("not now", IDL.TOutcome.NOT_APPLIED),
        IDL.TNotAllowed,
        IDL.TNoSuchQueue,
    ],
    ids=["it refuses all", "it does not allow it", "it does not serve the queue"],
)
def test_what_ends_without_an_answer_is_unknown_if_any_call_of_a_hub_was(
    make: Make, then: Callable[[], Exception]
) -> None:
    hub = make()
    hub.fails_later = then
    with client_of(hub) as client, pytest.raises(hqueue.HQueueError) as raised:
        client.topic("t").publish_idempotent([b"v"], sequence_number=0)
    assert hub.published == 1
    assert raised.value.outcome is Outcome.UNKNOWN


def may_be_called(silent: SilentHubs, hub: Address, answers: bool) -> bool:
    return carry_out(silent.may_be_called(hub, 1), lambda step: answers)


def test_however_many_hubs_were_silent_only_the_latest_are_remembered() -> None:
    silent = SilentHubs(SYSTEM_CLOCK)
    hubs = [Address("10.0.0.1", port) for port in range(1, HUBS_MAX + 2)]
    for hub in hubs:
        silent.note(hub)
    assert may_be_called(silent, hubs[0], False)
    assert not any(may_be_called(silent, hub, False) for hub in hubs[1:])


def test_a_hub_that_was_silent_is_chosen_again_though_another_one_never_was() -> None:
    """The other one may be dead: nobody is silent who refuses a connection."""
    clock = SteppedClock(0.0)
    silent = SilentHubs(clock)
    was_silent, dead = hubs = [Address("10.0.0.1", 1), Address("10.0.0.2", 1)]
    silent.note(was_silent)
    by = random.Random(1)
    assert {silent.choose(hubs, by) for _ in range(50)} == {dead}
    clock.sleep_ms(AVOIDED_MS + 1)
    assert {silent.choose(hubs, by) for _ in range(50)} == {was_silent, dead}


@both_faces
def test_the_api_of_a_silent_hub_is_left_alone_and_another_one_is_called(make: Make) -> None:
    stopped, other = make(), make()
    with client_of(stopped, other) as client:
        queue = client.queue()
        while not (stopped.described and other.described):  # Both are known, and connected to.
            assert queue.partitions == 2
        stopped.goes_on.clear()
        began_s = time.monotonic()
        for _ in range(30):
            assert queue.partitions == 2
        assert time.monotonic() - began_s < SOON_S


@both_faces
def test_a_hub_that_was_silent_to_a_publish_is_not_asked_for_its_api(make: Make) -> None:
    stopped, other = make(), make()
    with client_of(stopped, other) as client:
        stopped.goes_on.clear()
        for number in range(10):
            client.topic(f"t{number}").publish_idempotent([b"v"], sequence_number=number)
        began_s = time.monotonic()
        for _ in range(30):
            assert client.queue().partitions == 2
        assert time.monotonic() - began_s < 1


@both_faces
def test_a_put_to_the_api_of_a_hub_that_falls_silent_is_soon_made_at_another(make: Make) -> None:
    stopped, other = make(), make()
    with client_of(stopped, other) as client:
        queue = client.queue()
        for _ in range(10):
            queue.put(hqueue.Message("t", b"v"))
        assert stopped.published
        stopped.goes_on.clear()
        began_s, before = time.monotonic(), other.published
        for _ in range(10):
            queue.put(hqueue.Message("t", b"v"))
        assert time.monotonic() - began_s < SOON_S
        assert other.published == before + 10


def test_puts_ask_for_a_position_from_time_to_time(make: Make) -> None:
    hub, clock = make(), SteppedClock()
    settings = HubClientSettings(hubs=[hub.address], queue="q")
    with contextlib.closing(hqueue.HubClient(settings, clock)) as client:
        for _ in range(3):
            client.queue().put(hqueue.Message("t", b"v"))
        assert hub.positions == 1
        clock.now_ms += POSITION_MS + 1
        client.queue().put(hqueue.Message("t", b"v"))
    assert (hub.positions, hub.published) == (2, 4)


@both_faces
def test_a_put_to_a_hub_of_an_older_version_is_not_applied_unless_it_has_a_key() -> None:
    methods = [each for each in API.HQueueService.thrift_services if each != "currentPosition"]
    service = type("OlderService", (API.HQueueService,), {"thrift_services": methods})
    with (
        contextlib.closing(Hub(service)) as older,
        hqueue.connect_hubs(older.address, queue="q", operation_timeout_ms=300) as client,
    ):
        with pytest.raises(HubUnavailableError) as raised:
            client.queue().put(hqueue.Message("t", b"v"))
        assert raised.value.outcome is Outcome.NOT_APPLIED
        assert older.published == 0
        client.queue().put(hqueue.Message("t", b"v"), partition=0, idempotency_key="once")
    assert older.published == 1


@both_faces
def test_a_call_of_an_api_that_takes_long_over_it_is_waited_for(make: Make) -> None:
    slow = make()
    slow.takes_s = 0.7 * TIMEOUT_MS / 1e3
    with client_of(slow) as client:
        client.queue().put(hqueue.Message("t", b"v"), partition=0)
    assert slow.published == 1
