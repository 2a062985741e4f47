"""Requests to one server: framing, bounds, answers that are late, torn, too large or senseless.
By both transports: the one that blocks, and asyncio's.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hqueue import (
    ClosedError,
    Outcome,
    QueueExistsError,
    QueueNotFoundError,
    RequestRefusedError,
    Settings,
    StoreUnavailableError,
)
from hqueue.errors import HQueueError, QueueDisabledError, QueueEnabledError
from hqueue.hbase.native.calls import REQUESTS_MAX
from hqueue.hbase.native.connection import BlockingCall, Connection
from hqueue.hbase.native.exchanges import Request
from hqueue.hbase.native.opening import Opener
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.translation import NotServedError
from hqueue.hbase.native.wire import CLIENT, FRAME_BYTES_MAX, LENGTH, RemoteError, varint
from hqueue.settings.addresses import Address
from tests.support.looped import BlockingServers, LoopedServers
from tests.support.scripted_server import Asked, ScriptedServer, answer, refusal
from tests.support.waiting import wait_for

Serve = Callable[[Callable[[Asked], Iterable[bytes]]], ScriptedServer]
Transport = BlockingServers | LoopedServers
SHORT_MS = 150.0


@pytest.fixture
def serve() -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def begin(script: Callable[[Asked], Iterable[bytes]]) -> ScriptedServer:
            return stack.enter_context(contextlib.closing(ScriptedServer(script)))

        yield begin


@pytest.fixture(params=["blocking", "asyncio"])
def servers(request: pytest.FixtureRequest) -> Iterator[Transport]:
    with contextlib.ExitStack() as stack:
        if request.param == "blocking":
            yield stack.enter_context(contextlib.closing(BlockingServers(Settings())))
        else:
            looped = LoopedServers(Settings())
            stack.callback(looped.end)
            yield looped


def ask(
    servers: Transport, server: ScriptedServer, message: bytes = b"", timeout_ms: float = 30_000
) -> bytes:
    request = Request(server.address, b"Get", message)
    return bytes(servers.ask(request, "q", timeout_ms).message)


def named(message: bytes) -> object:
    return pb.NameBytesPair(name="echo", value=message)


def echo(asked: Asked) -> list[bytes]:
    return [answer(asked, named(asked.message))]


def value_of(message: bytes) -> bytes:
    return bytes(pb.NameBytesPair.FromString(message).value)


def test_a_request_and_its_cells_arrive_and_the_answer_comes_back(
    servers: Transport, serve: Serve
) -> None:
    came: list[Asked] = []

    def script(asked: Asked) -> list[bytes]:
        came.append(asked)
        return [answer(asked, named(b"yes"), asked.cells)]

    server = serve(script)
    large = [b"a" * 3_000_000, b"", b"b" * 17]
    size = sum(map(len, large))
    request = Request(server.address, b"Mutate", b"what", large, size)
    said = servers.ask(request, "q")
    assert value_of(bytes(said.message)) == b"yes"
    assert bytes(said.cells) == b"".join(large)
    assert [(each.method, each.message, each.cells) for each in came] == [
        ("Mutate", b"what", b"".join(large))
    ]
    assert server.services == [CLIENT]


def test_many_requests_share_a_connection_and_each_gets_its_own_answer(
    servers: Transport, serve: Serve
) -> None:
    server = serve(echo)
    messages = [b"%d" % number * (number % 5_000) for number in range(400)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda message: ask(servers, server, message), messages))
    assert [value_of(each) for each in answers] == messages
    assert len(server.services) == 1


def test_answers_may_come_in_any_order(servers: Transport, serve: Serve) -> None:
    waiting: list[Asked] = []

    def script(asked: Asked) -> list[bytes]:
        waiting.append(asked)
        return (
            [answer(each, named(each.message)) for each in reversed(waiting)]
            if len(waiting) == 8
            else []
        )

    server = serve(script)
    with ThreadPoolExecutor(8) as pool:
        messages = [b"%d" % number for number in range(8)]
        answers = list(pool.map(lambda message: ask(servers, server, message), messages))
    assert [value_of(each) for each in answers] == messages


def test_of_many_requests_so_many_are_under_way_as_may_be(servers: Transport, serve: Serve) -> None:
    waiting: list[Asked] = []
    most = [0]

    def script(asked: Asked) -> list[bytes]:
        waiting.append(asked)
        most[0] = max(most[0], len(waiting))
        if len(waiting) < 4:
            return []
        now = [answer(each, named(each.message)) for each in reversed(waiting)]
        waiting.clear()
        return now

    server = serve(script)
    messages = [b"%d" % number for number in range(40)]
    taken: list[bytes] = []

    def requests() -> Iterator[Request]:
        for message in messages:
            taken.append(message)
            yield Request(server.address, b"Get", message)

    said = servers.ask_all(requests(), "q", together_max=4)
    assert not any(isinstance(each, HQueueError) for each in said)
    assert [value_of(bytes(each.message)) for each in said] == messages  # type: ignore[union-attr]
    assert taken == messages
    assert most == [4]


def test_one_that_is_never_answered_holds_up_no_other(servers: Transport, serve: Serve) -> None:
    def script(asked: Asked) -> list[bytes]:
        return [] if asked.message == b"never" else echo(asked)

    server = serve(script)
    with ThreadPoolExecutor(2) as pool:
        never = pool.submit(ask, servers, server, b"never", 1_000)
        for number in range(200):
            assert value_of(ask(servers, server, b"%d" % number)) == b"%d" % number
        with pytest.raises(StoreUnavailableError) as caught:
            never.result()
    assert caught.value.outcome is Outcome.UNKNOWN


def test_one_that_waits_reads_on_for_one_that_is_not_there(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[Asked] = []
    sleeps, left = threading.Event(), threading.Event()
    wait = BlockingCall.wait

    def sleep(call: BlockingCall) -> None:
        sleeps.set()
        wait(call)

    monkeypatch.setattr(BlockingCall, "wait", sleep)

    def script(asked: Asked) -> Iterator[bytes]:
        came.append(asked)
        if len(came) == 3:
            assert sleeps.wait(30)
            yield answer(came[1], named(b"reader"))
            assert left.wait(30)
            yield answer(came[2], named(b"sleeper"))
            yield answer(came[0], named(b"away"))

    connection = Connection(Opener().open(serve(script).address, CLIENT, 30))

    def begin(bound_s: float) -> BlockingCall:
        return connection.begin(b"Get", b"", [], 0, time.monotonic() + bound_s)

    with contextlib.closing(connection), ThreadPoolExecutor(2) as pool:
        away = begin(30)  # Its owner has others to send before it waits.
        reader = pool.submit(connection.finish, begin(30))
        wait_for(lambda: connection._reading, "one reads")
        sleeper = pool.submit(connection.finish, begin(2))
        try:
            reader.result(30)
        finally:
            left.set()
        found = sleeper.result(30), connection.finish(away)
    assert not any(isinstance(each, RemoteError) for each in found)
    assert [value_of(bytes(each.message)) for each in found] == [b"sleeper", b"away"]  # type: ignore[union-attr]


def test_a_late_answer_is_thrown_away(servers: Transport, serve: Serve) -> None:
    held: list[Asked] = []
    arrived = threading.Event()

    def script(asked: Asked) -> list[bytes]:
        if asked.message == b"late":
            held.append(asked)
            arrived.set()
            return []
        late = held if asked.message == b"next" else []
        return [*(answer(each, named(each.message)) for each in late), *echo(asked)]

    server = serve(script)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(ask, servers, server, b"late", 2_000)
        assert arrived.wait(30)
        # Something is heard meanwhile: so the server is slow, and not gone.
        assert value_of(ask(servers, server, b"meanwhile")) == b"meanwhile"
        with pytest.raises(StoreUnavailableError):
            late.result()
    for message in (b"next", b"and one"):
        assert value_of(ask(servers, server, message)) == message
        held.clear()
    assert len(server.services) == 1


def test_after_silence_another_connection_is_opened(servers: Transport, serve: Serve) -> None:
    server = serve(lambda asked: [] if asked.message == b"never" else echo(asked))
    with pytest.raises(StoreUnavailableError):
        ask(servers, server, b"never", SHORT_MS)
    assert value_of(ask(servers, server, b"next")) == b"next"
    assert len(server.services) == 2


def test_an_idle_connection_that_the_server_closed_is_not_used(
    servers: Transport, serve: Serve
) -> None:
    server = serve(echo)
    assert value_of(ask(servers, server, b"1")) == b"1"
    server.break_connections()
    wait_for(lambda: not servers.is_usable(), "its end has arrived")
    assert value_of(ask(servers, server, b"2")) == b"2"
    assert len(server.services) == 2


SENSELESS: dict[str, Callable[[Asked], bytes]] = {
    "no length": lambda asked: LENGTH.pack(0),
    "a length beyond the bound": lambda asked: LENGTH.pack(FRAME_BYTES_MAX + 1),
    "all ones": lambda asked: b"\xff" * 64,
    "an invalid header": lambda asked: LENGTH.pack(3) + b"\x02\xff\xff",
    "a header beyond the frame": lambda asked: LENGTH.pack(2) + b"\x40\x08",
    "no number": lambda asked: LENGTH.pack(2) + b"\x00\x00",
    "another's number": lambda asked: answer(asked._replace(number=77), named(b"x")),
    "a message beyond the frame": lambda asked: _frame(
        pb.ResponseHeader(call_id=asked.number).SerializeToString(), b"\x7f"
    ),
    "cells that were not said": lambda asked: _frame(
        pb.ResponseHeader(call_id=asked.number).SerializeToString(), b"\x00cells"
    ),
    "a varint without an end": lambda asked: _frame(
        pb.ResponseHeader(call_id=asked.number).SerializeToString(), b"\xff" * 9
    ),
}


def _frame(header: bytes, rest: bytes) -> bytes:
    body = varint(len(header)) + header + rest
    return LENGTH.pack(len(body)) + body


@pytest.mark.parametrize("kind", SENSELESS)
def test_a_senseless_answer_leaves_the_outcome_unknown_and_ends_the_connection(
    servers: Transport, serve: Serve, kind: str
) -> None:
    server = serve(
        lambda asked: [SENSELESS[kind](asked)] if asked.message == b"first" else echo(asked)
    )
    with pytest.raises(StoreUnavailableError) as caught:
        ask(servers, server, b"first")
    assert caught.value.outcome is Outcome.UNKNOWN
    assert value_of(ask(servers, server, b"next")) == b"next"
    assert len(server.services) == 2


def test_a_torn_answer_leaves_the_outcome_unknown(servers: Transport, serve: Serve) -> None:
    def script(asked: Asked) -> Iterator[bytes]:
        yield answer(asked, named(b"x" * 100))[:50]
        raise ConnectionError("the connection is closed")

    with pytest.raises(StoreUnavailableError) as caught:
        ask(servers, serve(script))
    assert caught.value.outcome is Outcome.UNKNOWN


def test_an_answer_may_come_byte_by_byte(servers: Transport, serve: Serve) -> None:
    def script(asked: Asked) -> Iterator[bytes]:
        whole = answer(asked, named(asked.message))
        for at in range(len(whole)):
            yield whole[at : at + 1]

    assert value_of(ask(servers, serve(script), b"slow")) == b"slow"


def test_a_promised_length_takes_no_memory(servers: Transport, serve: Serve) -> None:
    server = serve(lambda asked: [LENGTH.pack(FRAME_BYTES_MAX) + b"x" * 100])
    with pytest.raises(StoreUnavailableError):
        ask(servers, server, b"", SHORT_MS)
    assert 0 < servers.held_bytes() <= 1 << 20


def test_what_can_not_be_sent_is_not_applied(servers: Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
    with pytest.raises(StoreUnavailableError) as caught:
        servers.ask(Request(address, b"Get", b""), "q")
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert caught.value.server == str(address)


def test_a_request_that_the_server_never_took_in_is_not_applied(
    servers: Transport, serve: Serve
) -> None:
    arrived, stopped = threading.Event(), threading.Event()

    def script(asked: Asked) -> list[bytes]:
        arrived.set()
        stopped.wait(60)
        return echo(asked)

    server = serve(script)
    try:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(ask, servers, server, b"first")
            assert arrived.wait(30)
            large = [b"x" * (64 << 20)]  # More than the system keeps for a connection.
            request = Request(server.address, b"Mutate", b"", large, len(large[0]))
            with pytest.raises(StoreUnavailableError) as caught:
                servers.ask(request, "q", 500)
            stopped.set()
            assert caught.value.outcome is Outcome.NOT_APPLIED
            with contextlib.suppress(StoreUnavailableError):  # Half a request ends a connection.
                first.result()
    finally:
        stopped.set()
    assert value_of(ask(servers, server, b"next")) == b"next"


def test_no_more_requests_are_under_way_than_the_bound(servers: Transport, serve: Serve) -> None:
    server = serve(lambda asked: [])
    requests = [Request(server.address, b"Get", b"")] * (REQUESTS_MAX + 1)
    answers = servers.ask_all(requests, "q", 1_000)
    outcomes = [each.outcome for each in answers if isinstance(each, HQueueError)]
    assert outcomes == [Outcome.UNKNOWN] * REQUESTS_MAX + [Outcome.NOT_APPLIED]


HBASE = "org.apache.hadoop.hbase."
ERRORS: list[tuple[str, bool, type[HQueueError], Outcome]] = [
    (HBASE + "NotServingRegionException", False, NotServedError, Outcome.NOT_APPLIED),
    (HBASE + "exceptions.RegionMovedException", False, NotServedError, Outcome.NOT_APPLIED),
    (HBASE + "exceptions.RegionOpeningException", False, NotServedError, Outcome.NOT_APPLIED),
    (HBASE + "regionserver.WrongRegionException", False, NotServedError, Outcome.NOT_APPLIED),
    (HBASE + "RegionTooBusyException", False, StoreUnavailableError, Outcome.NOT_APPLIED),
    (HBASE + "CallQueueTooBigException", False, StoreUnavailableError, Outcome.NOT_APPLIED),
    (HBASE + "CallDroppedException", False, StoreUnavailableError, Outcome.NOT_APPLIED),
    (HBASE + "PleaseHoldException", False, StoreUnavailableError, Outcome.NOT_APPLIED),
    (HBASE + "exceptions.MasterStoppedException", True, StoreUnavailableError,
     Outcome.NOT_APPLIED),
    (HBASE + "ipc.ServerNotRunningYetException", False, StoreUnavailableError, Outcome.NOT_APPLIED),
    (HBASE + "regionserver.RegionServerStoppedException", False, StoreUnavailableError,
     Outcome.UNKNOWN),
    (HBASE + "regionserver.wal.WALSyncTimeoutIOException", False, StoreUnavailableError,
     Outcome.UNKNOWN),
    (HBASE + "UnknownScannerException", True, StoreUnavailableError, Outcome.UNKNOWN),
    ("java.io.IOException", False, StoreUnavailableError, Outcome.UNKNOWN),
    (HBASE + "DoNotRetryIOException", True, RequestRefusedError, Outcome.NOT_APPLIED),
    (HBASE + "regionserver.NoSuchColumnFamilyException", True, RequestRefusedError,
     Outcome.NOT_APPLIED),
    (HBASE + "TableNotFoundException", True, QueueNotFoundError, Outcome.NOT_APPLIED),
    (HBASE + "TableExistsException", True, QueueExistsError, Outcome.NOT_APPLIED),
    (HBASE + "NamespaceNotFoundException", True, RequestRefusedError, Outcome.NOT_APPLIED),
    (HBASE + "TableNotEnabledException", True, QueueDisabledError, Outcome.NOT_APPLIED),
    (HBASE + "TableNotDisabledException", True, QueueEnabledError, Outcome.NOT_APPLIED),
]  # fmt: skip


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case[0].rpartition(".")[2])
def test_each_error_is_translated_and_says_whether_it_was_applied(
    servers: Transport,
    serve: Serve,
    case: tuple[str, bool, type[HQueueError], Outcome],
) -> None:
    name, final, kind, outcome = case
    server = serve(
        lambda asked: [refusal(asked, name, final=final)] if asked.message else echo(asked)
    )
    with pytest.raises(HQueueError) as caught:
        ask(servers, server, b"first")
    assert type(caught.value) is kind
    assert caught.value.outcome is outcome
    assert caught.value.queue == "q"
    ask(servers, server)
    assert len(server.services) == 1, "an error is an answer: the connection stays"


def test_closed_servers_take_nothing(servers: Transport, serve: Serve) -> None:
    server = serve(echo)
    ask(servers, server)
    servers.close()
    servers.close()
    with pytest.raises(ClosedError):
        ask(servers, server)


def test_closing_ends_what_is_under_way(servers: Transport, serve: Serve) -> None:
    arrived = threading.Semaphore(0)

    def script(asked: Asked) -> list[bytes]:
        arrived.release()
        return []

    server = serve(script)
    with ThreadPoolExecutor(1) as pool:
        request = Request(server.address, b"Get", b"")
        asked = pool.submit(servers.ask_all, [request] * 3, "q")
        assert all(arrived.acquire(timeout=30) for _ in range(3))
        servers.close()
        answers = asked.result(30)
    assert [type(each) for each in answers] == [ClosedError] * 3
    outcomes = {each.outcome for each in answers if isinstance(each, ClosedError)}
    assert outcomes == {Outcome.UNKNOWN}, "they were sent"
    wait_for(lambda: servers.descriptor() == -1, "nobody uses its socket any more")
