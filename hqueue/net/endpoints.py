"""Finds out what listens at an address.

Each protocol is tried by a connection of its own, with a question that harms none of the others:
these servers end the connection when they can't read a call, and do nothing else.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import ssl

from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.sockets import open_connection
from hqueue.settings.addresses import Address

__all__ = ["Met", "meet"]

ANSWER_BYTES_MAX = 4_096


class Met(enum.Enum):
    """What was met at an address."""

    NOTHING = "nothing"
    HUB = "a hub"
    ZOOKEEPER = "ZooKeeper"
    HBASE = "a server of HBase's own protocol"
    THRIFT = "a Thrift server"
    WEB = "a web server"
    TLS = "a server that wants TLS"
    SSH = "an SSH server"
    SILENT = "a server that says nothing"
    OTHER = "a server of another protocol"


_CALL = b"\x80\x01\x00\x01\x00\x00\x00\x06hqueue\x00\x00\x00\x00\x00"
"""A call of a method that no service has, without arguments; answered by an exception."""

_HUBS_CALL = b"\x80\x01\x00\x01\x00\x00\x00\x0aapiAddress\x00\x00\x00\x00\x00"
_HUBS_ANSWER = b"\x80\x01\x00\x02"
"""A call that nothing but a hub has, and what its answer begins with: no exception."""

_WHICH_CLUSTER = b"Regist"
_OF_CONNECTION = b"\x08\xff\xff\xff\xff\x0f"
"""Asks a server of HBase for its cluster's ID, and what the answer has in its header."""

_QUESTIONS = (
    b"GET / HTTP/1.0\r\n\r\n",
    b"srvr",
    _CALL,
    len(_CALL).to_bytes(4, "big") + _CALL,
)

_OWN_QUESTIONS = {
    Met.ZOOKEEPER: b"srvr", Met.THRIFT: _CALL, Met.HUB: _HUBS_CALL, Met.HBASE: _WHICH_CLUSTER
}  # fmt: skip


@functools.cache
def _hello() -> bytes:
    """How a client of TLS begins: servers that say nothing in clear answer that."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    said = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said).do_handshake()
    return said.read()


_SIGNS: tuple[tuple[Met, tuple[bytes, ...], tuple[bytes, ...]], ...] = (
    (Met.WEB, (b"HTTP/",), ()),
    (Met.SSH, (b"SSH-",), ()),
    (Met.TLS, (b"\x15\x03", b"\x16\x03"), ()),
    (Met.HBASE, (), (b"HBas", b"org.apache.hadoop.hbase", _OF_CONNECTION)),
    (Met.ZOOKEEPER, (), (b"ookeeper version", b"ZooKeeper", b"in the whitelist")),
    (Met.THRIFT, (b"\x80\x01",), (b"\x80\x01\x00\x03",)),
)
"""What the first bytes of an answer begin with, or hold, and whose answer that is."""


def meet(address: Address, timeout_s: float, wanted: Met | None = None) -> Met:
    """What listens there, as far as it shows that within the bound. Never raises.

    Args:
        address: where.
        timeout_s: the bound.
        wanted: what should be there. It is asked first as its own clients ask it: what is well is
            not disturbed, and logs nothing.
    """
    deadline = Deadline(SYSTEM_CLOCK, timeout_s * 1e3)
    met = Met.NOTHING
    slow = False
    own = _OWN_QUESTIONS.get(wanted) if wanted is not None else None
    asked = (*_QUESTIONS, _hello())
    questions = [*([] if own is None else [own]), *(each for each in asked if each != own)]
    for number, question in enumerate(questions):
        left_s = deadline.remaining_ms / 1e3 / (len(questions) - number)
        try:
            answer = _ask(address, question, max(0.05, left_s))
        except OSError:
            if number == 0:
                return Met.NOTHING
            continue
        if question == _HUBS_CALL and answer and answer.startswith(_HUBS_ANSWER):
            return Met.HUB
        found = _known(answer)
        if found is not None:
            return found
        if own is not None and number == 0:
            slow = answer is None  # It may be what is wanted: that ends the other connections.
        if met is not Met.OTHER:
            met = Met.OTHER if answer or (answer is not None and not slow) else Met.SILENT
    return met


def _ask(address: Address, question: bytes, timeout_s: float) -> bytes | None:
    """The first bytes of the answer; none where the connection was ended, None where none came.

    Raises:
        OSError: nobody listens there.
    """
    deadline = Deadline(SYSTEM_CLOCK, timeout_s * 1e3)
    with open_connection(address, timeout_s) as opened:
        answer = b""
        with contextlib.suppress(ConnectionError):
            opened.sendall(question)
            while len(answer) < ANSWER_BYTES_MAX and _known(answer) is None:
                opened.settimeout(max(0.01, deadline.remaining_ms / 1e3))
                try:
                    part = opened.recv(ANSWER_BYTES_MAX)
                except TimeoutError:
                    return answer or None
                if not part:
                    break
                answer += part
    return answer


def _known(answer: bytes | None) -> Met | None:
    """Whose answer this is; None if it is not known."""
    for met, begins, holds in _SIGNS:
        if answer and (answer.startswith(begins) or any(sign in answer for sign in holds)):
            return met
    return None
