"""A port with quotas, by real sockets: who is over its quota is refused by a typed answer before
its call is decoded, waits if it does not obey, and holds up nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hqueue.net.quotas import PortQuotas, QuotaRules
from hqueue.rpc.messages import decode_reply
from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from hqueue_workers.hub.serving.answers import as_thrift
from tests.support.looped import LoopThread
from tests.support.thrift_calls import field, head, listed
from tests.support.waiting import wait_for

IDL = load("hub")
SERVICE = IDL.HQueueHubService
LATE_S = 20.0
MUCH = 1_000_000
DELETE = head(b"deleteTopic") + b"\0"
ADDRESS = head(b"apiAddress") + b"\0"


def publish(value: bytes) -> bytes:
    text = field(11, 4, struct.pack(">i", len(value)) + value)
    return head(b"publishMessages") + field(15, 4, listed(12, 1, text + b"\0")) + b"\0"


class Hub:
    """Counts calls, and answers."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.address = "here"

    async def apiAddress(self) -> str:  # noqa: N802  (the IDL's)
        self.calls.append("apiAddress")
        await asyncio.sleep(0.01)
        return self.address

    def deleteTopic(self, *given: Any) -> bool:  # noqa: N802  (the IDL's)
        self.calls.append("deleteTopic")
        return True

    def publishMessages(self, *given: Any) -> Any:  # noqa: N802  (the IDL's)
        self.calls.append("publishMessages")
        return IDL.TPublished(load("subscriber").TMessageID(1, 0), 0, 1)


class Served:
    """A server with quotas, in an event loop."""

    def __init__(self, rules: str, **options: Any) -> None:
        self.hub = Hub()
        self.quotas = PortQuotas("hub", QuotaRules(rules))
        listener = socket.create_server(("127.0.0.1", 0))
        self._address = listener.getsockname()
        chosen = {"connections_max": 64, "call_bytes_max": 16 << 20, **options}
        self.server = ThriftServer(
            SERVICE,
            self.hub,
            listener,
            threads=4,
            in_loop=True,
            idle_ms_max=10_000,
            as_declared=as_thrift,
            quotas=self.quotas,
            unrefused=["apiAddress"],
            **chosen,
        )
        self.thread = LoopThread()
        self.thread.call(self.server.start)

    @property
    def callers(self) -> Any:
        return self.server._port.callers

    def connect(self, host: str = "127.0.0.1") -> socket.socket:
        """A connection from an address of this machine, each of which is a caller of its own."""
        return socket.create_connection(self._address, LATE_S, source_address=(host, 0))

    def close(self) -> None:
        self.thread.call(lambda: self.server.close(0))
        self.thread.close()


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def serve(stack: contextlib.ExitStack, rules: str, **options: Any) -> Served:
    served = Served(rules, **options)
    stack.callback(served.close)
    return served


def answered(sock: socket.socket, call: bytes) -> bytes:
    """The answer to a call, all of it."""
    sock.sendall(call)
    return sock.recv(65_536)


def refused(answer: bytes, method: str = "deleteTopic") -> Any:
    """The `TBusy` that an answer says; None if the call was served."""
    try:
        decode_reply(SERVICE, method, answer)
    except IDL.TBusy as exc:
        return exc
    return None


def is_silent(sock: socket.socket, seconds: float) -> bool:
    return not select.select([sock], [], [], seconds)[0]


def test_who_is_over_its_quota_is_told_when_to_come_back_and_its_call_never_ran(
    stack: contextlib.ExitStack,
) -> None:
    served = serve(stack, "*:calls=2")
    with served.connect() as sock, served.connect() as again:
        assert [refused(answered(sock, DELETE)) for _ in range(2)] == [None, None]
        busy = refused(answered(sock, DELETE))
        assert busy.message.startswith(b"the caller is over its quota; call again later")
        assert b"limit='calls'" in busy.message
        assert 0 < busy.retryAfterMs <= 500
        later = refused(answered(again, DELETE)).retryAfterMs
        assert busy.retryAfterMs < later <= 1_000, "all connections of a caller share its quota"
        assert served.hub.calls == ["deleteTopic"] * 2
        time.sleep(later / 1e3)
        assert refused(answered(sock, DELETE)) is None
    assert served.quotas.refused == {"calls": 2}


def test_a_client_that_knows_no_quotas_reads_an_error_that_it_knows(
    stack: contextlib.ExitStack,
) -> None:
    served = serve(stack, "*:calls=1")
    with served.connect() as sock:
        answered(sock, DELETE)
        answer = answered(sock, DELETE)
    spec = dict(IDL.TBusy.thrift_spec)
    stack.callback(lambda: IDL.TBusy.thrift_spec.update(spec))
    del IDL.TBusy.thrift_spec[2]  # As in the IDL before.
    assert refused(answer).message.startswith(b"the caller is over its quota")


def test_a_caller_that_does_not_obey_waits_and_others_do_not(stack: contextlib.ExitStack) -> None:
    served = serve(stack, "*:calls=2")
    with served.connect() as sock, served.connect("127.0.0.2") as other:
        began_s = time.monotonic()
        while (busy := refused(answered(sock, DELETE))) is None:
            pass
        for _ in range(20):
            sock.sendall(DELETE)
        assert is_silent(sock, 0.2), "it is not even refused before it may come back"
        assert refused(answered(other, DELETE)) is None
        assert time.monotonic() - began_s < busy.retryAfterMs / 1e3 or not is_silent(sock, LATE_S)
        assert refused(sock.recv(65_536)) is None, "then it is served, as far as its quota goes"
    allowed = 2 * (1 + (time.monotonic() - began_s)) + 2
    assert len(served.hub.calls) <= allowed


def test_calls_that_come_by_the_hundred_cost_one_refusal(stack: contextlib.ExitStack) -> None:
    served = serve(stack, "*:calls=1")
    with served.connect() as sock:
        sock.sendall(DELETE * 500)
        wait_for(lambda: served.quotas.refused, "it is refused")
        assert sock.recv(65_536)
        time.sleep(0.3)
        assert served.quotas.refused == {"calls": 1}
    assert served.hub.calls == ["deleteTopic"]


def test_bytes_are_paid_for_of_calls_and_of_answers(stack: contextlib.ExitStack) -> None:
    served = serve(stack, "anonymous:bytes_in=100000 bytes_out=100000")
    served.hub.address = "x" * 300_000
    with served.connect() as sock, served.connect("127.0.0.2") as other:
        assert refused(answered(sock, publish(bytes(250_000))), "publishMessages") is None
        busy = refused(answered(sock, DELETE))
        assert b"limit='bytes_in'" in busy.message
        assert 1_000 < busy.retryAfterMs <= 1_510
        other.sendall(ADDRESS)
        got = 0
        while got < 300_000:
            got += len(other.recv(65_536))
        busy = refused(answered(other, DELETE))
        assert b"limit='bytes_out'" in busy.message
        assert 1_500 < busy.retryAfterMs <= 2_010


def test_half_a_call_is_paid_for_when_its_caller_goes(stack: contextlib.ExitStack) -> None:
    served = serve(stack, "*:bytes_in=100000")
    with served.connect() as sock:
        sock.sendall(publish(bytes(250_000))[:-10])
        wait_for(lambda: served.callers.held_bytes > 250_000, "it has come")
    wait_for(lambda: not len(served.callers), "it has gone")
    with served.connect() as sock:
        assert b"limit='bytes_in'" in refused(answered(sock, DELETE)).message


def test_what_a_client_needs_to_stay_known_is_served_and_it_waits_after_that(
    stack: contextlib.ExitStack,
) -> None:
    served = serve(stack, "*:calls=1")
    with served.connect() as sock:
        assert refused(answered(sock, DELETE)) is None
        assert b"here" in answered(sock, ADDRESS)
        sock.sendall(ADDRESS)
        assert is_silent(sock, 0.2)
        assert b"here" in sock.recv(65_536)
    assert served.quotas.refused == {}


def test_a_caller_that_waits_holds_no_memory_for_what_it_sends(
    stack: contextlib.ExitStack,
) -> None:
    served = serve(stack, "*:bytes_in=1024")
    with served.connect() as sock:
        answered(sock, publish(bytes(100_000)))
        assert refused(answered(sock, DELETE))
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while sock.send(publish(bytes(MUCH))):
                pass
        time.sleep(0.2)
        assert served.callers.held_bytes == 0
        assert len(served.callers) == 1


def test_a_caller_that_waits_gives_way_to_others_and_the_end(stack: contextlib.ExitStack) -> None:
    served = serve(stack, "*:bytes_in=1024", connections_max=2)
    waiting = [stack.enter_context(served.connect()) for _ in range(2)]
    answered(waiting[0], publish(bytes(100_000)))
    for sock in waiting:
        assert refused(answered(sock, DELETE))
        sock.sendall(DELETE)
    with served.connect("127.0.0.2") as other:
        assert refused(answered(other, DELETE)) is None, "after a second at most"
    began_s = time.monotonic()
    served.thread.call(lambda: served.server.close(0))
    assert time.monotonic() - began_s < 2


def test_a_caller_without_a_quota_is_not_bound(stack: contextlib.ExitStack) -> None:
    served = serve(stack, "loader:calls=1")
    with served.connect() as sock:
        for _ in range(50):
            assert refused(answered(sock, DELETE)) is None
