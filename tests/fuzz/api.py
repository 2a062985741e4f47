"""Calls of strangers to the Thrift API's port."""

from __future__ import annotations

import functools
import logging
import socket
import threading
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TCyMemoryBuffer

from hqueue import Message
from hqueue.rpc.server import ThriftServer
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue_workers.api.handler import Handler
from hqueue_workers.api.scanners import ScannerTable
from hqueue_workers.api.structs import API, SERVICE
from tests.support.apache_thrift import ApacheClient, apache_module
from tests.support.backends import MemoryBackend
from tests.support.extras import headers, keys
from tests.support.looped import LoopThread

from .ports import ANSWER_S_MAX, Bytes, nearly, sent
from .target import Target

__all__ = ["TARGETS"]

CALL_BYTES_MAX = 64 * 1024
SCANNERS_MAX = 64
OPEN_MS = 500.0
RESULTS = {
    "ok", "illegal_argument", "queue_state", "scanner_not_found", "unavailable",
    "idempotency_key",
}  # fmt: skip
"""What a stranger's call may end with: never with a fault of the process."""


class _Served:
    """The API's port over a cluster in memory, and a caller of it that is as it should be."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        client = MemoryBackend().connect()
        for name in ("q", "own"):
            client.create_queue(name, partitions=2)
        client.queue("own").put(Message("t", b"own"), partition=0)
        self.results: set[str] = set()
        self.lock = threading.Lock()
        self.scanners = ScannerTable(
            count_max=SCANNERS_MAX, bytes_max=2**26, idle_ms=OPEN_MS, clock=SYSTEM_CLOCK
        )
        handler = Handler(client, self.scanners, 2**16, SYSTEM_CLOCK, self._count)
        server = ThriftServer(
            SERVICE,
            handler,
            listener,
            threads=2,
            in_loop=True,
            connections_max=16,
            call_bytes_max=CALL_BYTES_MAX,
            idle_ms_max=1_000,
        )
        self._thread = LoopThread()
        self._thread.call(server.start)
        self._caller = ApacheClient(*self.address, timeout_s=ANSWER_S_MAX)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=ANSWER_S_MAX)

    def answer(self) -> None:
        """See that the caller puts and gets what it should, whatever strangers have open."""
        assert len(self.scanners) <= SCANNERS_MAX
        self._thread.run(self.scanners.close_all())
        scanner = self._caller.messageScannerOpen("own", 0, apache_module().TMessageScan())
        assert self._caller.messageScannerGet(scanner).value == b"own"
        assert self.results <= RESULTS, self.results

    def _count(self, method: str, result: str, took_ms: float) -> None:
        self.results.add(result)


@functools.cache
def _served() -> _Served:
    return _Served()


def _call(given: Bytes) -> None:
    """Whatever is sent, it is answered or hung up on, and so soon that no other notices."""
    for name in ("hqueue", "hqueue_workers"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    served = _served()
    with served.connect() as stranger:
        try:
            stranger.sendall(sent(given))
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4_096):
                pass
        except OSError as exc:  # It was hung up on, at any step. But not forgotten.
            assert not isinstance(exc, TimeoutError)
    served.answer()


def _encoded(method: str, arguments: Sequence[Any]) -> bytes:
    """A call, as a client sends it."""
    memory = TCyMemoryBuffer()
    client = TClient(SERVICE, TCyBinaryProtocol(memory))  # type: ignore[no-untyped-call]
    client._send(method, **dict(zip(_names(method), arguments, strict=True)))
    call: bytes = memory.getvalue()
    return call


@functools.cache
def _names(method: str) -> list[str]:
    spec = getattr(SERVICE, f"{method}_args").thrift_spec
    return [spec[number][1] for number in sorted(spec)]


_SHARED = API.subscriber
queues = st.sampled_from(["q", "gone", "", "ü", "a/b", None])
partitions = st.sampled_from([0, 1, 2, -1, 2**15 - 1, -(2**15), None])
ids = st.none() | st.builds(
    _SHARED.TMessageID,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(-(2**15), 2**15 - 1),
)
contents = st.none() | st.binary(max_size=20)
messages = st.none() | st.builds(
    _SHARED.TMessage,
    id=ids,
    partitionID=partitions,
    topic=contents | st.just(b"t"),
    value=contents,
    key=keys,
    headers=st.none()
    | headers.map(lambda given: [_SHARED.THeader(n.encode(), v) for n, v in given])
    | st.lists(st.builds(_SHARED.THeader, contents, contents), max_size=2),
)
several = st.none() | st.lists(messages.filter(lambda each: each is not None), max_size=4)
scans = st.none() | st.builds(
    API.TMessageScan, ids, ids, st.none() | st.lists(st.binary(max_size=5), max_size=3)
)
puts = st.none() | st.builds(API.TPut, queues, several, partitions, contents, contents, ids)
scanners = st.sampled_from(["", "0" * 32, "ü", None])
counts = st.sampled_from([1, 0, -1, 2**31 - 1, None])

CALLS: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    "messageScannerOpen": (queues, partitions, scans),
    "messageScannerGet": (scanners,),
    "messageScannerGetList": (scanners, counts),
    "messageScannerClose": (scanners,),
    "putMessage": (queues, messages),
    "putMessages": (queues, several),
    "putMessageWithPid": (queues, partitions, messages),
    "putMessagesWithPid": (queues, partitions, several),
    "put": (puts,),
    "currentPosition": (queues,),
    "getQueueLocations": (queues,),
}
own_calls = st.one_of(
    [
        st.tuples(*arguments).map(functools.partial(_encoded, method))
        for method, arguments in CALLS.items()
    ]
)

TARGETS: list[Target[Any]] = [
    Target("thrift-api", nearly(own_calls, b"putMessages"), _call),
    Target("thrift-api-arguments", own_calls.map(lambda call: (call, [], b"")), _call),
]
