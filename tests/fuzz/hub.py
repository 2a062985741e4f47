"""Calls of strangers to a hub's port."""

from __future__ import annotations

import functools
import socket
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from hypothesis import strategies as st
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TMemoryBuffer

from hqueue import Message, MessageID
from hqueue.message import Headers
from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from hqueue_workers.hub.metrics import HubMetrics
from hqueue_workers.hub.owned import Published
from hqueue_workers.hub.service import HubService, hub_service
from tests.support.extras import headers, keys

from .ports import ANSWER_S_MAX, CALL_BYTES_MAX, Bytes, call_as_stranger, nearly
from .target import Target

__all__ = ["TARGETS"]

PENDING_BYTES_MAX = 1024 * 1024


class _Region:
    """Publishes to nowhere, and sees that what comes is what may be published."""

    def publish(
        self, caller: str, topic: str, messages: Sequence[Message], size: int, *, redirected: bool
    ) -> Future[Published]:
        assert 1 <= len(caller) <= 200
        assert messages
        assert all(type(each) is Message and each.topic == topic for each in messages)
        assert size == sum(each.size for each in messages)
        done: Future[Published] = Future()
        done.set_result(Published(MessageID(9, 9), 3, len(messages)))
        return done


def _own_call(given: Sequence[tuple[bytes, bytes | None, Headers]]) -> bytes:
    structs = load("subscriber")
    messages = [
        structs.TMessage(
            topic=b"",
            value=value,
            key=key,
            headers=[structs.THeader(name.encode(), data) for name, data in found],
        )
        for value, key, found in given
    ]
    sent = TMemoryBuffer()
    client = TClient(load("hub").HQueueHubService, TBinaryProtocol(sent))
    client._send(
        "publishMessages",
        queue="q",
        publisher="me",
        topic="t",
        messages=messages,
        redirected=False,
    )
    call: bytes = sent.getvalue()
    return call


class _Hub:
    """A hub's port, and a caller of it that is as it should be."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        region: Any = _Region()
        self.service = HubService({"q": region}, HubMetrics(dict, lambda: 0), PENDING_BYTES_MAX)
        ThriftServer(
            hub_service(),
            self.service,
            listener,
            threads=2,
            connections_max=16,
            call_bytes_max=CALL_BYTES_MAX,
            idle_ms_max=1_000,
        ).start()
        self._call = _own_call([(b"v", None, ())])
        self._caller = self.connect()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=ANSWER_S_MAX)

    def answer(self) -> None:
        """See that the caller is answered, and that nothing is left waiting."""
        self._caller.sendall(self._call)
        answer = self._caller.recv(200)
        assert answer.startswith(b"\x80\x01\x00\x02"), answer
        assert self.service.pending_bytes == 0


@functools.cache
def _hub() -> _Hub:
    return _Hub()


def _publish(given: Bytes) -> None:
    call_as_stranger(_hub(), given)


own_calls = st.lists(st.tuples(st.binary(max_size=50), keys, headers), max_size=4).map(_own_call)

TARGETS: list[Target[Any]] = [Target("hub", nearly(own_calls, b"publishMessages"), _publish)]
