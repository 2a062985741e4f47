"""Frames of HBase's RPC: requests as bytes, and bytes as answers.

A connection begins with ``HBas``, a version (0) and how one proves who one is: 80, not at all; 81,
by Kerberos; 82, by a delegation token. The handshake of the latter two follows
(`hqueue.hbase.native.greeting`). Then comes the connection header, as a frame. Each request and
each answer is a frame:

offset  size  field
0       4     length of what follows, big-endian
4       …     varint, and a RequestHeader or ResponseHeader of that many bytes
…       …     varint, and the method's message of that many bytes; none in an answer with an error
…       …     the cell block, where the header names one: `hqueue.hbase.native.cells`
"""

from __future__ import annotations

import getpass
from typing import NamedTuple

from google.protobuf.message import DecodeError

from hqueue.hbase.native.protocol import pb
from hqueue.net.framing import LENGTH

__all__ = [
    "ADMIN",
    "CLIENT",
    "FRAME_BYTES_MAX",
    "KERBEROS",
    "LENGTH",
    "MASTER",
    "REGISTRY",
    "SAID_BYTES_MAX",
    "SIMPLE",
    "TOKEN",
    "WHICH_CLUSTER",
    "WHOLE_CONNECTION",
    "WHO_IS_THERE",
    "Answer",
    "RemoteError",
    "connection_header",
    "preamble",
    "read_answer",
    "request_front",
    "varint",
]

CLIENT = "ClientService"
"""Rows, at region servers."""

ADMIN = "AdminService"
"""What region servers say of themselves."""

MASTER = "MasterService"
"""Administration, at the active master."""

REGISTRY = "ClientMetaService"
"""Where the cluster's first servers are, and the cluster's ID: at any master."""

FRAME_BYTES_MAX = 256 * 1024 * 1024
"""A region server gathers at most 100 MB of cells, and one row."""

CODEC = "org.apache.hadoop.hbase.codec.KeyValueCodec"
SIMPLE, KERBEROS, TOKEN = 80, 81, 82
"""How one proves who one is."""

WHO_IS_THERE = b"Securi"
"""Before the preamble: asks for the server's principal, which nobody has proven then."""

WHICH_CLUSTER = b"Regist"
"""Likewise: asks for the cluster's ID, after which the server closes the connection."""

SAID_BYTES_MAX = 1024 * 1024
"""Of one message before the connection header."""

WHOLE_CONNECTION = 0xFFFFFFFF
"""The number in an answer that is about the connection, which the server closes."""

VERSION = (2, 6)
"""The version that this client reports. Servers answer Gets of clients older than 1.3 without cell
blocks.
"""

VARINT_BYTES_MAX = 5


class RemoteError(Exception):
    """An error that a server gave as its answer.

    Args:
        name: the class of the exception, with its package.
        text: what it says; mostly with a stack trace.
        final: whether the server says that trying again is of no use.
    """

    def __init__(self, name: str, text: str, final: bool) -> None:
        super().__init__(name)
        self.name = name
        self.text = text
        self.final = final

    @property
    def kind(self) -> str:
        """The class's own name."""
        return self.name.rpartition(".")[2].rpartition("$")[2]


class Answer(NamedTuple):
    """What a method returned: views of the frame that it came in."""

    message: memoryview
    cells: memoryview
    """The cell block; empty if there is none."""


def preamble(authentication: int = SIMPLE) -> bytes:
    """What a connection begins with, before anything is framed."""
    return b"HBas" + bytes((0, authentication))


def connection_header(service: str, *, named: bool = True) -> bytes:
    """The first frame: who speaks, to which service.

    Args:
        service: the service's name.
        named: whether the user of this process is named. Not where Kerberos or a token says who
            speaks: any other name means that one speaks for another.
    """
    header = pb.ConnectionHeader(
        user_info=pb.UserInformation(effective_user=_user()) if named else None,
        service_name=service,
        cell_block_codec_class=CODEC,
        version_info=pb.VersionInfo(
            version=".".join(map(str, VERSION)), url="", revision="", user="", date="",
            src_checksum="", version_major=VERSION[0], version_minor=VERSION[1],
        ),
    ).SerializeToString()  # fmt: skip
    return LENGTH.pack(len(header)) + bytes(header)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A process whose user has no name.
        return "hqueue"


def request_front(
    number: int, method: bytes, message: bytes, cell_bytes: int, timeout_ms: int
) -> bytes:
    """A request's frame up to its cell block. A RequestHeader by hand, for each request has one."""
    header = b"\x08%b\x1a%b%b\x20\x01" % (varint(number), varint(len(method)), method)
    if cell_bytes:
        meta = b"\x08" + varint(cell_bytes)
        header += b"\x2a%b%b" % (varint(len(meta)), meta)
    header += b"\x38" + varint(timeout_ms)
    front = b"".join((varint(len(header)), header, varint(len(message)), message))
    return LENGTH.pack(len(front) + cell_bytes) + front


def read_answer(frame: bytearray) -> tuple[int, Answer | RemoteError]:
    """The number of the request that a frame answers, and the answer.

    Raises:
        ValueError: it is not an answer.
    """
    view = memoryview(frame)
    size, at = _read_varint(view, 0)
    try:
        header = pb.ResponseHeader.FromString(view[at : at + size])
    except DecodeError as exc:
        raise ValueError("the answer has no header") from exc
    at += size
    if at > len(view) or not header.HasField("call_id"):
        raise ValueError("the answer has no header")
    if header.HasField("exception"):
        said = header.exception
        name, text = said.exception_class_name, said.stack_trace
        return header.call_id, RemoteError(name, text, said.do_not_retry)
    size, at = _read_varint(view, at)
    block = len(view) - at - size
    if block < 0 or block != header.cell_block_meta.length:
        raise ValueError("the answer's length differs from the length that it states")
    return header.call_id, Answer(view[at : at + size], view[at + size :])


def varint(number: int) -> bytes:
    """A whole number of 0 or above as protobuf writes it."""
    if number < 0x80:
        return _SMALL[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_SMALL = [bytes((number,)) for number in range(0x80)]


def field(tag: bytes, whole: bytes) -> bytes:
    """A field that begins with its length, as protobuf has it."""
    return tag + varint(len(whole)) + whole


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(view[at : at + VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("the answer is cut off")
