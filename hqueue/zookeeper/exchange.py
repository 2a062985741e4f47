"""Exchanges ZooKeeper's frames on a connection, as work without I/O: one request at a time, and its
reply.

```
client                                    server
length │ version, time-out │ no session →
                                       ←  length │ version, time-out, session, password
length │ xid, kind │ what is asked     →
                                       ←  length │ xid, zxid, error │ what is answered
```
"""

from __future__ import annotations

import struct

from kazoo.exceptions import EXCEPTIONS

from hqueue.net.talking import Talk, Talking

__all__ = ["LENGTH", "Exchange", "sized", "unsized"]

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Of what a server sends. ZooKeeper's own bound on a node is 1 MiB, unless set."""

LENGTH = struct.Struct("!i")
_CONNECT = struct.Struct("!iqiqi16s?")
"""Version 0, no transaction seen, the time-out, no session yet, its password, no reading alone."""
_ACCEPTED = struct.Struct("!ii")
_REQUEST = struct.Struct("!ii")
_REPLY = struct.Struct("!iqi")


class Exchange:
    """Sends requests to one server, and reads its replies.

    Args:
        talk: with the server.
    """

    def __init__(self, talk: Talk) -> None:
        self._talk = talk

    def begin(self, timeout_ms: int) -> Talking[None]:
        """Begin a session.

        Raises:
            ConnectionError: the server accepts no session.
            OSError, struct.error, ValueError: no answer comes, or it is malformed.
        """
        self._send(_CONNECT.pack(0, 0, timeout_ms, 0, 16, b"", False))
        _, granted_ms = _ACCEPTED.unpack_from((yield from self._receive()))
        if granted_ms <= 0:
            raise ConnectionError("the server accepts no session")

    def request(self, xid: int, kind: int, body: bytes = b"") -> None:
        """Queue a request."""
        self._send(_REQUEST.pack(xid, kind) + body)

    def reply(self, xid: int) -> Talking[bytes]:
        """Return the body of the reply to a request.

        Raises:
            KazooException: the server did not do it.
            OSError, struct.error, ValueError: no answer comes, or it is malformed.
        """
        frame = yield from self._receive()
        of, _, code = _REPLY.unpack_from(frame)
        if of != xid:
            raise ValueError("the reply belongs to another request")
        if code:
            if code not in EXCEPTIONS:
                raise ValueError(f"the reply has an unknown code: {code}")
            raise EXCEPTIONS[code]
        return frame[_REPLY.size :]

    def flush(self) -> Talking[None]:
        """Send what was requested."""
        yield from self._talk.flush()

    def _send(self, frame: bytes) -> None:
        self._talk.say(LENGTH.pack(len(frame)) + frame)

    def _receive(self) -> Talking[bytes]:
        (length,) = LENGTH.unpack((yield from self._talk.hear(LENGTH.size)))
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise ValueError("this is not a frame of ZooKeeper")
        return (yield from self._talk.hear(length))


def sized(data: bytes) -> bytes:
    """Put data's length before it."""
    return LENGTH.pack(len(data)) + data


def unsized(body: bytes) -> bytes:
    """Return the data that a body begins with. Its length is -1 if there is none.

    Raises:
        struct.error, ValueError: it is cut off.
    """
    (length,) = LENGTH.unpack_from(body)
    data = body[LENGTH.size :][: max(0, length)]
    if len(data) < length:
        raise ValueError("the reply is cut off")
    return data
