"""The subscriber's Thrift server, spoken to by Thrift's own client and by raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import thriftpy2
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TApplicationException
from thriftpy2.transport import TTransportException

from hqueue import MessageID, ReceivedMessage, Status
from hqueue.metadata import Address
from hqueue.push.listener import Listeners
from hqueue.push.service import Consumption, subscriber_service
from hqueue.push.worker_call import WorkerCall
from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from hqueue_workers.delivery.wire import call_head, call_tail, encode_message
from tests.support.delivering import Delivering
from tests.support.thrift_calls import HOSTILE, head
from tests.support.waiting import wait_for

IDL = Path(__file__).parents[3] / "thrift" / "subscriber.thrift"
foreign = thriftpy2.load(str(IDL), module_name="test_subscriber_thrift")

CALL_BYTES_MAX = 100_000
Consume = Callable[[Sequence[ReceivedMessage]], object]
GONE = (OSError, EOFError, TTransportException)


class Served:
    """A server with one listener."""

    def __init__(
        self, listener: Consume, kind: type[Consumption] = Consumption, **options: int
    ) -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        self.port: int = sock.getsockname()[1]
        chosen = {
            "threads": 4,
            "connections_max": 64,
            "call_bytes_max": CALL_BYTES_MAX,
            "idle_ms_max": 10_000,
            "calls_max": 4,
            "timeout_ms": 5_000,
            **options,
        }
        consumption = kind(
            Listeners(listener, 5_000, "sub"), chosen.pop("calls_max"), chosen.pop("timeout_ms")
        )
        self.server = ThriftServer(
            subscriber_service(),
            consumption,
            sock,
            quick=functools.partial(WorkerCall, consumption.consume),
            **chosen,
        )
        self.server.start()

    def client(self, timeout_ms: int = 10_000) -> Any:
        return make_client(
            foreign.HQueueSubscriberService, "127.0.0.1", self.port, timeout=timeout_ms
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[Served] = []
    before = set(threading.enumerate())

    def start(listener: Consume = lambda messages: None, **options: Any) -> Served:
        started.append(Served(listener, **options))
        return started[-1]

    yield start
    for served in started:
        served.server.close(5_000)
    left = set(threading.enumerate()) - before
    assert not [t for t in left if t.name.startswith("hqueue-server")]


def message(sequence: int, value: bytes = b"v", partition: int = 3) -> Any:
    return foreign.TMessage(foreign.TMessageID(1_700_000_000_000, sequence), partition, b"t", value)


def test_a_client_with_nothing_but_the_idl_delivers_messages_and_gets_the_status(
    serve: Serve,
) -> None:
    got: list[ReceivedMessage] = []
    statuses = iter(Status)

    def listener(messages: Sequence[ReceivedMessage]) -> Status:
        got.extend(messages)
        return next(statuses)

    served = serve(listener)
    with contextlib.closing(served.client()) as client:
        body = bytes(range(256))
        assert client.consumeMessages([message(0, body), message(32_767, b"")]) == 0
        assert client.consumeMessages([message(1)]) == 1
        assert client.consumeMessages([message(2)]) == 2
        assert client.consumeMessages([]) == 0
    assert [(m.topic, m.value, m.id, m.partition) for m in got[:2]] == [
        ("t", body, MessageID(1_700_000_000_000, 0), 3),
        ("t", b"", MessageID(1_700_000_000_000, 32_767), 3),
    ]
    assert len(got) == 4


def test_keys_and_headers_arrive_and_missing_ones_are_told_from_empty_ones(serve: Serve) -> None:
    got: list[ReceivedMessage] = []
    served = serve(got.extend)
    sent = [
        ReceivedMessage("t", b"v", MessageID(1, at), 3, key=key, headers=headers)
        for at, (key, headers) in enumerate(
            itertools.product(
                (None, b"", b"k\xff"), ((), [("n", b"\xff"), ("", b""), ("n", b"2")], [("ü", b"")])
            )
        )
    ]
    with Delivering(Address("127.0.0.1", served.port)) as worker:
        assert worker.deliver(sent) == 0
    with served.connect() as caller:
        caller.sendall(call_of(1, sent))
        assert caller.recv(1_000)[-5:] == bytes(5)
    assert got == sent * 2


@pytest.mark.parametrize("library", [True, False])
def test_what_a_listener_raised_stands_in_the_answer(serve: Serve, library: bool) -> None:
    def listener(messages: Sequence[ReceivedMessage]) -> None:
        raise ValueError("a bug")

    served = serve(listener)
    call = own_call(1, 1)
    if library:
        call = call[:-2] + b"\x06\0\x63\0\0" + call[-2:]
    with served.connect() as caller:
        caller.sendall(call)
        answer = caller.recv(1_000)
    reason = b"ValueError: a bug"
    fields = struct.pack(">Bhi", 8, 0, 1) + struct.pack(">Bhi", 11, 2, len(reason)) + reason
    assert answer.endswith(fields + b"\0")
    with contextlib.closing(served.client()) as client:
        assert client.consumeMessages([message(1)]) == Status.RETRY


def test_a_header_whose_name_is_no_text_is_an_error_and_the_connection_stays(
    serve: Serve,
) -> None:
    served = serve()
    name = b"a name that is long"
    sent = ReceivedMessage("t", b"v", MessageID(1, 1), 3, headers=[(name.decode(), b"v")])
    with served.connect() as caller:
        caller.sendall(call_of(1, [sent]).replace(name, b"\xff" * len(name)))
        assert b"can't hold this message" in caller.recv(1_000)
        caller.sendall(call_of(1, [sent]))
        assert caller.recv(1_000)[-5:] == bytes(5)


def _with_headers(*headers: Any) -> Any:
    return foreign.TMessage(foreign.TMessageID(1, 0), 0, b"t", b"v", None, list(headers))


@pytest.mark.parametrize(
    "wrong",
    [
        _with_headers(foreign.THeader(b"\xff", b"v")),
        _with_headers(foreign.THeader(b"n", b"v"), foreign.THeader(None, b"v")),
        _with_headers(foreign.THeader(b"n", None)),
        foreign.TMessage(topic=b"\xff", value=b"v"),
        foreign.TMessage(topic=b"", value=b"v"),
        foreign.TMessage(topic=b"t" * 256, value=b"v"),
        foreign.TMessage(foreign.TMessageID(-1, 0), 0, b"t", b"v"),
        foreign.TMessage(None, 0, b"t", b"v"),
        foreign.TMessage(foreign.TMessageID(1, 0), None, b"t", b"v"),
    ],
)
def test_a_message_that_could_be_in_no_queue_is_an_error_and_the_connection_stays(
    serve: Serve, wrong: Any
) -> None:
    served = serve()
    with contextlib.closing(served.client()) as client:
        with pytest.raises(TApplicationException):
            client.consumeMessages([wrong])
        assert client.consumeMessages([message(1)]) == 0


BAD_BYTES = {
    "text": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "huge name": b"\x80\x01\x00\x01" + struct.pack(">i", 2**31 - 1),
    "negative name": b"\x80\x01\x00\x01" + struct.pack(">i", -5) + bytes(8),
    "huge list": b"\x80\x01\x00\x01\x00\x00\x00\x0fconsumeMessages\x00\x00\x00\x01"
    b"\x0f\x00\x01\x0c\x7f\xff\xff\xff" + b"\x0b\x00\x04\x7f\xff\xff\xff",
    "framed": struct.pack(">i", 32) + b"\x80\x01\x00\x01" + bytes(28),
}


def assert_hung_up(caller: socket.socket) -> None:
    """See that the other side ends, with an error if it says anything."""
    with contextlib.suppress(ConnectionError):
        answer = caller.recv(65_536)
        assert answer[:4] in (b"", b"\x80\x01\x00\x03")
        assert not answer or caller.recv(1) == b""


@pytest.mark.parametrize("name", BAD_BYTES)
def test_whoever_sends_what_is_no_call_is_hung_up_on_and_others_go_on(
    serve: Serve, name: str
) -> None:
    served = serve(idle_ms_max=300)
    with contextlib.closing(served.client()) as client, served.connect() as bad:
        assert client.consumeMessages([message(1)]) == 0
        for _ in range(3):
            with served.connect() as another:
                another.sendall(BAD_BYTES[name])
        bad.sendall(BAD_BYTES[name])
        assert_hung_up(bad)
        assert client.consumeMessages([message(2)]) == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_whoever_promises_what_never_comes_is_hung_up_on_at_once_and_others_go_on(
    serve: Serve, name: str
) -> None:
    served = serve()
    with contextlib.closing(served.client()) as client, served.connect() as bad:
        assert client.consumeMessages([message(1)]) == 0
        began_s = time.monotonic()
        bad.sendall(head(b"consumeMessages") + HOSTILE[name])
        assert client.consumeMessages([message(2)]) == 0
        assert_hung_up(bad)
        assert client.consumeMessages([message(3)]) == 0
        assert time.monotonic() - began_s < 10


def call_of(seqid: int, sent: Sequence[ReceivedMessage]) -> bytes:
    """A call as workers write it."""
    return b"".join([call_head(seqid, len(sent)), *map(encode_message, sent), call_tail])


def own_call(seqid: int, *sequences: int) -> bytes:
    return call_of(
        seqid, [ReceivedMessage("t", b"v", MessageID(1, sequence), 3) for sequence in sequences]
    )


@pytest.mark.parametrize("threads", [1, 4])
def test_calls_that_come_together_are_answered_one_after_another(
    serve: Serve, threads: int
) -> None:
    got: list[ReceivedMessage] = []
    served = serve(got.extend, threads=threads)
    foreign_call = head(b"consumeMessages", seqid=3) + b"\x0f\0\1\x0c" + bytes(4) + b"\0"
    with served.connect() as caller:
        sent = own_call(1, 1, 2) + own_call(2, 3) + foreign_call + own_call(4, 4)
        caller.sendall(sent[:-5])
        answers = b""
        while len(answers) < 3 * 35:
            answers += caller.recv(1_000)
        caller.sendall(sent[-5:])
        while len(answers) < 4 * 35:
            answers += caller.recv(1_000)
    assert [answers[at : at + 4] for at in range(23, 140, 35)] == [
        seqid.to_bytes(4, "big") for seqid in range(1, 5)
    ]
    assert [m.id.sequence for m in got if m.id] == [1, 2, 3, 4]


def test_what_newer_releases_add_is_passed_over(serve: Serve) -> None:
    got: list[ReceivedMessage] = []
    served = serve(got.extend)
    added = b"\x0d\0\x63\x0b\x08" + bytes(4) + b"\x0f\0\x64\x0a\0\0\0\1" + bytes(8)
    call = own_call(1, 1)
    with served.connect() as caller:
        caller.sendall(call[:-2] + added + call[-2:-1] + added + call[-1:])
        assert caller.recv(1_000)[-5:] == bytes(5)
        caller.sendall(call)
        assert caller.recv(1_000)[-5:] == bytes(5)
    assert got == [ReceivedMessage("t", b"v", MessageID(1, 1), 3)] * 2


def test_a_call_without_its_list_is_an_error_and_never_done(serve: Serve) -> None:
    served = serve()
    with contextlib.closing(served.client()) as client, pytest.raises(TApplicationException):
        client.consumeMessages(None)


def test_a_call_beyond_the_bound_is_refused_and_none_of_it_is_kept(serve: Serve) -> None:
    got: list[ReceivedMessage] = []
    served = serve(got.extend)
    refused = pytest.raises(TApplicationException, match="announces more than 100000 bytes")
    with contextlib.closing(served.client()) as client, refused:
        client.consumeMessages([message(1, b"x" * (8 * CALL_BYTES_MAX))])
    with contextlib.closing(served.client()) as client:
        assert client.consumeMessages([message(1, b"x" * (CALL_BYTES_MAX // 2))]) == 0
        assert client.consumeMessages([message(2, b"x" * (CALL_BYTES_MAX // 2))]) == 0
    assert len(got) == 2


def test_half_a_call_holds_nothing_for_longer_than_it_may(serve: Serve) -> None:
    served = serve(threads=1, idle_ms_max=300)
    with served.connect() as stuck, contextlib.closing(served.client()) as client:
        stuck.sendall(b"\x80\x01\x00\x01")
        assert client.consumeMessages([message(1)]) == 0
        assert stuck.recv(1) == b""


def test_a_call_that_comes_in_drops_holds_nothing_for_longer_than_it_may(serve: Serve) -> None:
    served = serve(threads=1, idle_ms_max=300)
    gone = threading.Event()
    with served.connect() as dripping, contextlib.closing(served.client()) as client:

        def drip() -> None:
            dripping.sendall(b"\x80\x01\x00\x01\x00\x00\x00\xc8")
            with contextlib.suppress(OSError):
                while not gone.wait(0.05):
                    dripping.sendall(b"c")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            assert client.consumeMessages([message(1)]) == 0
            assert dripping.recv(1) == b""
        except ConnectionResetError:
            pass  # It is hung up on while it sends.
        finally:
            gone.set()
            thread.join()


def test_silent_connections_cost_no_thread(serve: Serve) -> None:
    served = serve(threads=2, connections_max=1_000)
    before = threading.active_count()
    with contextlib.ExitStack() as open_connections:
        for _ in range(200):
            open_connections.enter_context(served.connect())
        with contextlib.closing(served.client()) as client:
            assert client.consumeMessages([message(1)]) == 0
        assert threading.active_count() <= before


def test_for_a_connection_beyond_the_bound_one_goes_that_is_idle(serve: Serve) -> None:
    served = serve(connections_max=2)
    before = served.client(), served.client()
    for each in before:
        assert each.consumeMessages([message(1)]) == 0
    third = served.client()
    assert third.consumeMessages([message(3)]) == 0
    # Which of them was idle for longer, their threads say: `test_callers.py` has the order.
    gone = [each for each in before if is_gone(each)]
    assert len(gone) == 1
    assert third.consumeMessages([message(4)]) == 0
    for each in (*before, third):
        each.close()


def is_gone(client: Any) -> bool:
    try:
        return bool(client.consumeMessages([message(4)]))
    except GONE:
        return True


def test_those_that_never_called_go_before_those_that_did(serve: Serve) -> None:
    served = serve(connections_max=8)
    with contextlib.closing(served.client()) as client, contextlib.ExitStack() as strangers:
        assert client.consumeMessages([message(1)]) == 0
        for at in range(100):
            stranger = strangers.enter_context(served.connect())
            if at % 2:
                stranger.sendall(b"\x80\x01")
        assert client.consumeMessages([message(2)]) == 0


def test_half_calls_on_more_connections_than_there_are_threads_stop_nobody(serve: Serve) -> None:
    served = serve(threads=2)
    with contextlib.ExitStack() as strangers, contextlib.closing(served.client()) as client:
        for at in range(20):
            strangers.enter_context(served.connect()).sendall(own_call(1, 1)[: 3 * at + 1])
        began_s = time.monotonic()
        for sequence in range(10):
            assert client.consumeMessages([message(sequence)]) == 0
        assert time.monotonic() - began_s < 5


class LongAnswers:
    """A hub's service, as far as it is asked for here."""

    def apiAddress(self) -> str:  # noqa: N802  (the IDL's)
        return "x" * (8 << 20)


def test_callers_that_do_not_read_their_answers_hold_no_thread_and_are_hung_up_on() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    server = ThriftServer(
        load("hub").HQueueHubService,
        LongAnswers(),
        listener,
        threads=2,
        connections_max=64,
        call_bytes_max=CALL_BYTES_MAX,
        idle_ms_max=1_000,
    )
    server.start()
    call = head(b"apiAddress") + b"\0"
    with contextlib.ExitStack() as left:
        left.callback(server.close, 5_000)
        sockets = [left.enter_context(socket.create_connection(address, 10)) for _ in range(6)]
        for sock in sockets:
            sock.sendall(call)
        with socket.create_connection(address, 10) as honest:
            for _ in range(3):
                honest.sendall(call)
                came = 0
                while came < 8 << 20:
                    came += len(honest.recv(1 << 20))
        for sock in sockets:
            wait_for(lambda sock=sock: is_hung_up(sock), "it is hung up on")  # type: ignore[misc]


def is_hung_up(sock: socket.socket) -> bool:
    """Whether the other side has hung up, although not all was read that it sent."""
    waiting = select.poll()
    waiting.register(sock, select.POLLRDHUP | select.POLLERR)
    return bool(waiting.poll(0))


def test_what_half_calls_hold_together_is_bounded_and_the_oldest_go(serve: Serve) -> None:
    served = serve(call_bytes_max=24 << 20, idle_ms_max=60_000)
    large = ReceivedMessage("t", bytes(8 << 20), MessageID(1, 1), 3)
    half = call_of(1, [large] * 3)[: 16 << 20]
    with contextlib.ExitStack() as strangers, contextlib.closing(served.client()) as client:
        sockets = [strangers.enter_context(served.connect()) for _ in range(5)]
        for sock in sockets:
            sock.sendall(half)
        wait_for(lambda: is_hung_up(sockets[0]), "the oldest one is hung up on")
        assert client.consumeMessages([message(1)]) == 0
        assert not is_hung_up(sockets[-1])


def test_a_connection_that_is_silent_for_too_long_leaves_its_place(serve: Serve) -> None:
    served = serve(connections_max=2, silent_ms_max=500)

    def is_answered() -> bool:
        try:
            with contextlib.closing(served.client()) as client:
                return bool(client.consumeMessages([message(1)]) == 0)
        except GONE:  # It stood still for so long itself.
            return False

    with served.connect() as silent, served.connect() as other:
        wait_for(is_answered, "one of the two places was left")
        assert silent.recv(1) == other.recv(1) == b""


def test_calls_for_one_partition_never_overlap_though_others_do(serve: Serve) -> None:
    running: set[int] = set()
    together: list[set[int]] = []
    lock = threading.Lock()
    meeting = threading.Barrier(2)

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        partition = messages[0].partition
        assert partition is not None
        with lock:
            assert partition not in running
            running.add(partition)
            together.append(set(running))
        meeting.wait(10)  # Two of different partitions, or none comes through.
        with lock:
            running.discard(partition)

    served = serve(listener, threads=8, calls_max=8)

    def deliver(partition: int) -> None:
        with contextlib.closing(served.client()) as client:
            for sequence in range(5):
                assert client.consumeMessages([message(sequence, partition=partition)]) == 0

    threads = [threading.Thread(target=deliver, args=(n % 2,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(together) == 20
    assert {0, 1} in together


def test_a_call_whose_turn_does_not_come_in_time_is_to_be_retried(serve: Serve) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        entered.set()
        assert go_on.wait(10)

    served = serve(listener, timeout_ms=200)
    with contextlib.closing(served.client()) as one, contextlib.closing(served.client()) as two:
        first: list[int] = []
        thread = threading.Thread(target=lambda: first.append(one.consumeMessages([message(1)])))
        thread.start()
        assert entered.wait(10)
        assert two.consumeMessages([message(1)]) == Status.RETRY
        go_on.set()
        thread.join(10)
        assert first == [Status.DONE]


def test_closing_answers_what_is_under_way_and_takes_no_more(serve: Serve) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        entered.set()
        assert go_on.wait(10)

    served = serve(listener)
    under_way, idle = served.client(), served.client()
    answers: list[int] = []
    calling = threading.Thread(
        target=lambda: answers.append(under_way.consumeMessages([message(1)]))
    )
    calling.start()
    assert entered.wait(10)
    closed: list[bool] = []
    closing = threading.Thread(target=lambda: closed.append(served.server.close(10_000)))
    closing.start()
    closing.join(0.2)
    assert closing.is_alive(), "it waits for the call that is under way"
    go_on.set()
    closing.join(10)
    calling.join(10)
    assert (answers, closed) == ([0], [True])
    with pytest.raises(GONE):
        idle.consumeMessages([message(2)])
    with pytest.raises(GONE):
        served.client()


def test_a_forked_child_does_not_keep_the_port(serve: Serve) -> None:
    served = serve()
    with contextlib.closing(served.client()) as client:
        assert client.consumeMessages([message(1)]) == 0
        reading, writing = os.pipe()
        forked, told = os.pipe()
        child = os.fork()
        if not child:
            os.close(writing)
            os.write(told, b"!")
            os.read(reading, 1)
            os._exit(0)
        try:
            os.read(forked, 1)  # A child that does not run yet keeps everything.
            assert client.consumeMessages([message(2)]) == 0
            assert served.server.close(5_000)
            with socket.create_server(("127.0.0.1", served.port)):
                pass
        finally:
            for end in (writing, reading, forked, told):
                os.close(end)
            os.waitpid(child, 0)


def test_closing_waits_no_longer_than_it_is_told(serve: Serve) -> None:
    go_on = threading.Event()
    entered = threading.Event()

    def listener(messages: Sequence[ReceivedMessage]) -> None:
        entered.set()
        assert go_on.wait(20)

    served = serve(listener)
    client = served.client()
    calling = threading.Thread(target=lambda: _suppressed(client))
    calling.start()
    assert entered.wait(10)
    began = time.monotonic()
    assert served.server.close(200) is False
    assert time.monotonic() - began < 15
    go_on.set()
    calling.join(10)
    for thread in threading.enumerate():
        if thread.name.startswith("hqueue-server"):
            thread.join(10)


def _suppressed(client: Any) -> None:
    with contextlib.suppress(*GONE):
        client.consumeMessages([message(1)])


def test_handlers_that_raise_what_is_no_exception_leave_the_server_its_threads(
    serve: Serve,
) -> None:
    raising = [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()] * 2

    class Raising(Consumption):
        def consume(self, messages: Sequence[ReceivedMessage]) -> Any:
            if raising:
                raise raising.pop()
            return super().consume(messages)

    served = serve(kind=Raising, threads=2)
    while raising:
        with pytest.raises(GONE), contextlib.closing(served.client()) as client:
            client.consumeMessages([message(1)])
    with contextlib.closing(served.client()) as client:
        assert client.consumeMessages([message(1)]) == Status.DONE


def test_what_many_small_calls_took_is_given_back_to_the_system_too(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back = threading.Event()
    monkeypatch.setattr("hqueue.rpc.admission.give_back_freed", given_back.set)
    monkeypatch.setattr("hqueue.rpc.admission.TRIM_BYTES", 20_000)
    monkeypatch.setattr("hqueue.rpc.admission.TRIM_LIGHT_EVERY_MS", 0.0)
    served = serve()
    with contextlib.closing(served.client()) as client:
        client.consumeMessages([message(1, bytes(10_000))])
        assert not given_back.is_set()
        for sequence in range(2, 6):
            client.consumeMessages([message(sequence, bytes(10_000))])
        assert given_back.wait(10)
