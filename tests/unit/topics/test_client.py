"""The client of hubs: what it does with each answer, over real sockets."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import hqueue
from hqueue import (
    Address,
    ClosedError,
    HubClient,
    HubClientSettings,
    HubUnavailableError,
    InvalidInputError,
    Message,
    MessageID,
    NotAllowedError,
    Outcome,
    QueueNotFoundError,
    SettingsError,
)
from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from hqueue.topics import calls
from tests.support.doubles import SteppedClock
from tests.support.hub_faces import both_faces

IDL, STRUCTS = load("hub"), load("subscriber")
WAIT_S = 60.0

Answer = Callable[..., Any]


class FakeHub:
    """A hub that answers as a test says."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answer = answer or self.done
        self._lock = threading.Lock()
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*listener.getsockname())
        self.server = ThriftServer(
            IDL.HQueueHubService,
            self,
            listener,
            threads=4,
            connections_max=256,
            call_bytes_max=2**24,
            idle_ms_max=10_000,
        )
        self.server.start()

    def publish(self, queue: Any, publisher: Any, topic: Any, message: Any, again: Any) -> Any:
        return self.publishMessages(queue, publisher, topic, [message], again)

    def publishMessages(  # noqa: N802  (the IDL's)
        self, queue: Any, publisher: Any, topic: Any, messages: Any, again: Any
    ) -> Any:
        with self._lock:
            self.calls.append((queue, publisher, topic, messages, again))
        return self.answer(messages)

    def done(self, messages: Any) -> Any:
        return IDL.TPublished(STRUCTS.TMessageID(7, len(self.calls)), 3, len(messages))

    def to(self, other: FakeHub) -> None:
        """Redirect from now on."""

        def redirect(messages: Any) -> Any:
            raise IDL.TRedirect(other.address.host, other.address.port)

        self.answer = redirect

    def close(self) -> None:
        self.server.close(1_000)


@pytest.fixture
def make_hub() -> Iterator[Callable[[], FakeHub]]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(contextlib.closing(FakeHub()))


@pytest.fixture
def hub(make_hub: Callable[[], FakeHub]) -> FakeHub:
    return make_hub()


@contextlib.contextmanager
def client_of(*hubs: FakeHub, **options: Any) -> Iterator[hqueue.HubClient]:
    addresses = ",".join(str(hub.address) for hub in hubs)
    with hqueue.connect_hubs(addresses, queue="q", **options) as client:
        yield client


@both_faces
def test_a_message_is_sent_with_its_key_and_headers_and_its_id_comes_back(hub: FakeHub) -> None:
    with client_of(hub, publisher="me") as client:
        message = Message("t", b"value", b"key", [("name", b"x")])
        assert client.topic("t", queue="other").publish(message) == MessageID(7, 1)
        assert client.topic("t").publish_many([b"a", b"b"]) == [MessageID(7, 2), MessageID(7, 3)]
    queue, publisher, topic, [sent], redirected = hub.calls[0]
    assert (queue, publisher, topic, redirected) == (b"other", b"me", b"t", False)
    assert (sent.value, sent.key) == (b"value", b"key")
    assert [(each.name, each.value) for each in sent.headers] == [(b"name", b"x")]
    assert [each.value for each in hub.calls[1][3]] == [b"a", b"b"]


@both_faces
def test_a_redirect_is_followed_and_the_owner_remembered(make_hub: Callable[[], FakeHub]) -> None:
    first, owner = make_hub(), make_hub()
    first.to(owner)
    with client_of(first) as client:
        for _ in range(3):
            client.topic("t").publish(b"v")
        client.topic("u").publish(b"v")
    assert [call[4] for call in first.calls] == [False, False]
    assert [call[4] for call in owner.calls] == [True, False, False, True]


def test_two_hubs_that_name_each_other_are_given_up_within_the_bound(
    make_hub: Callable[[], FakeHub], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = make_hub(), make_hub()
    one.to(other)
    other.to(one)
    clock = SteppedClock()
    settings = HubClientSettings((one.address,), "q", redirects_max=3, operation_timeout_ms=60_620)
    monkeypatch.setattr(calls, "RETRIES", dataclasses.replace(calls.RETRIES, spread=(1.0, 1.0)))
    with HubClient(settings, clock) as client, pytest.raises(HubUnavailableError) as caught:
        client.topic("t").publish(b"v")
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert clock.now_ms == 60_620
    pauses = 5 + 120  # From 20 ms on, each twice as long, up to half a second.
    assert len(one.calls) + len(other.calls) == 4 * pauses


@both_faces
def test_a_loop_that_ends_is_waited_for(make_hub: Callable[[], FakeHub]) -> None:
    one, other = make_hub(), make_hub()
    one.to(other)

    def soon(messages: Any) -> Any:
        if len(other.calls) < 5:
            raise IDL.TRedirect(*one.address)
        return other.done(messages)

    other.answer = soon
    with client_of(one, redirects_max=1) as client:
        assert client.topic("t").publish(b"v")


@both_faces
@pytest.mark.parametrize(
    "error", [IDL.TBusy("much"), IDL.TUnavailable("no", IDL.TOutcome.NOT_APPLIED)]
)
def test_what_was_not_applied_is_tried_again(hub: FakeHub, error: Exception) -> None:
    def later(messages: Any) -> Any:
        if len(hub.calls) < 3:
            raise error
        return hub.done(messages)

    hub.answer = later
    with client_of(hub) as client:
        assert client.topic("t").publish(b"v") == MessageID(7, 3)


@both_faces
@pytest.mark.parametrize(
    ("error", "raised", "outcome"),
    [
        (IDL.TIllegalArgument("why"), InvalidInputError, Outcome.NOT_APPLIED),
        (IDL.TNoSuchQueue("why"), QueueNotFoundError, Outcome.NOT_APPLIED),
        (IDL.TNotAllowed("why"), NotAllowedError, Outcome.NOT_APPLIED),
        (
            IDL.TUnavailable("why", IDL.TOutcome.UNKNOWN),
            HubUnavailableError,
            Outcome.UNKNOWN,
        ),
        (IDL.TUnavailable("why", 17), HubUnavailableError, Outcome.UNKNOWN),
        (ValueError("it failed"), HubUnavailableError, Outcome.UNKNOWN),
    ],
    ids=str,
)
def test_other_errors_are_raised_with_their_outcome_and_tried_once(
    hub: FakeHub, error: Exception, raised: type[hqueue.HQueueError], outcome: Outcome
) -> None:
    def fail(messages: Any) -> Any:
        raise error

    hub.answer = fail
    with client_of(hub) as client:
        with pytest.raises(raised) as caught:
            client.topic("t").publish(b"v")
        assert caught.value.outcome is outcome
        assert len(hub.calls) == 1
        hub.answer = hub.done
        assert client.topic("t").publish(b"v")


@both_faces
def test_a_hub_that_is_gone_is_passed_by(make_hub: Callable[[], FakeHub], hub: FakeHub) -> None:
    gone = make_hub()
    gone.to(hub)
    with client_of(gone, hub) as client:
        client.topic("t").publish(b"v")
        gone.close()
        for number in range(10):
            assert client.topic(f"t{number}").publish(b"v")


def test_a_connection_that_the_hub_closed_meanwhile_is_not_used(hub: FakeHub) -> None:
    with client_of(hub) as client:
        client.topic("t").publish(b"v")
        (pool,) = client._calls._connections._pools.values()
        pool.call(lambda kept: kept.socket._socket.shutdown(socket.SHUT_RDWR), (), open_ms=1_000)
        assert pool.opened == 1
        assert client.topic("t").publish(b"v")


class OtherServer:
    """Reads what it is sent, gives one answer to it, and hangs up."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                with connected:
                    connected.recv(65_536)
                    connected.sendall(self._answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(WAIT_S)


HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
HBASE = b"\0\0\0\x46" + b"\x45\x1a\x43\x0a\x32org.apache.hadoop.hbase.ipc.FatalConnectionException"


@contextlib.contextmanager
def other_service(kind: str) -> Iterator[Address]:
    """A server that answers and is not a hub: a hub's Thrift API, its metrics, HBase."""
    if kind == "Thrift API":
        listener = socket.create_server(("127.0.0.1", 0))
        address = Address(*listener.getsockname())
        service = load("hqueue").HQueueService
        server = ThriftServer(
            service,
            object(),
            listener,
            threads=1,
            connections_max=8,
            call_bytes_max=2**20,
            idle_ms_max=10_000,
        )
        server.start()
        try:
            yield address
        finally:
            server.close(0)
        return
    with contextlib.closing(OtherServer({"HTTP": HTTP, "HBase": HBASE}[kind])) as other:
        yield other.address


@both_faces
@pytest.mark.parametrize("kind", ["Thrift API", "HTTP", "HBase"])
def test_what_answers_and_is_no_hub_has_done_nothing_and_is_named(kind: str) -> None:
    with (
        other_service(kind) as address,
        hqueue.connect_hubs(address, queue="q", operation_timeout_ms=60_000) as client,
    ):
        with pytest.raises(HubUnavailableError, match="is not a hub") as caught:
            client.topic("t").publish(b"v")
        assert caught.value.outcome is Outcome.NOT_APPLIED
        assert caught.value.hub == str(address)
        with pytest.raises(InvalidInputError, match="own port"):
            client.queue().put(Message("t", b"v"))


@both_faces
def test_no_answer_in_time_is_an_unknown_outcome(hub: FakeHub) -> None:
    waiting: Future[Any] = Future()
    hub.answer = lambda messages: waiting
    with client_of(hub, operation_timeout_ms=200) as client:
        with pytest.raises(HubUnavailableError) as caught:
            client.topic("t").publish(b"v")
        assert caught.value.outcome is Outcome.UNKNOWN
    waiting.set_result(IDL.TPublished(STRUCTS.TMessageID(1, 1), 0, 1))


@both_faces
def test_an_answer_that_comes_later_holds_no_thread_of_the_server(hub: FakeHub) -> None:
    waiting: list[Future[Any]] = []
    all_there = threading.Event()
    lock = threading.Lock()

    def later(messages: Any) -> Any:
        with lock:
            waiting.append(Future())
            if len(waiting) == 20:
                all_there.set()
            return waiting[-1]

    hub.answer = later
    with client_of(hub) as client, ThreadPoolExecutor(20) as pool:
        published = [pool.submit(client.topic("t").publish, b"v") for _ in range(20)]
        assert all_there.wait(WAIT_S), "the server has four threads"
        for number, each in enumerate(waiting):
            each.set_result(IDL.TPublished(STRUCTS.TMessageID(1, number), 0, 1))
        assert {each.result(WAIT_S).sequence for each in published} == set(range(20))


def test_calls_that_wait_for_an_answer_are_answered_when_the_server_ends(hub: FakeHub) -> None:
    waiting: Future[Any] = Future()
    there = threading.Event()

    def later(messages: Any) -> Any:
        there.set()
        return waiting

    hub.answer = later
    with client_of(hub) as client, ThreadPoolExecutor(2) as pool:
        published = pool.submit(client.topic("t").publish, b"v")
        assert there.wait(WAIT_S)
        ending = pool.submit(hub.server.close, WAIT_S * 1e3)
        waiting.set_result(IDL.TPublished(STRUCTS.TMessageID(1, 1), 0, 1))
        assert published.result(WAIT_S)
        assert ending.result(WAIT_S) is True


def test_a_forked_child_publishes_by_connections_of_its_own(hub: FakeHub) -> None:
    with client_of(hub) as client:
        client.topic("t").publish(b"parent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                client.topic("t").publish(b"child")
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        client.topic("t").publish(b"parent again")
    assert {call[3][0].value for call in hub.calls} == {b"parent", b"child", b"parent again"}


@both_faces
def test_what_makes_no_sense_is_refused_before_anything_is_sent(hub: FakeHub) -> None:
    with client_of(hub) as client:
        for topic, messages in (("", [b"v"]), ("t", []), ("t", b"v"), ("t", [Message("u", b"v")])):
            with pytest.raises(InvalidInputError):
                client.topic(topic).publish_many(messages)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError):
            client.topic("t").publish("text")  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError):
            client.topic("t", queue="no queue's name").publish(b"v")
    with pytest.raises(ClosedError):
        client.topic("t").publish(b"v")
    with hqueue.connect_hubs([hub.address]) as nameless, pytest.raises(InvalidInputError):
        nameless.topic("t").publish(b"v")
    assert hub.calls == []


@pytest.mark.parametrize(
    "options",
    [
        {"hubs": ""},
        {"hubs": "nowhere"},
        {"hubs": [7]},
        {"hubs": "h:1", "redirects_max": 0},
        {"hubs": "h:1", "publisher": ""},
        {"hubs": "h:1", "queue": "a queue"},
        {"hubs": "h:1", "quee": "q"},
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        hqueue.connect_hubs(**options)
