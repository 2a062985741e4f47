"""Sends a value as a file, piece by piece."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from hqueue_workers.console.protocol import Receive, Scope, Send

__all__ = ["Download"]

PIECE_BYTES = 64 * 1024


class Download(Response):
    """An answer that the browser saves as a file. A piece is sent when the browser has read most of
    those before it.

    Args:
        value: what the file contains.
        name: the file's name, of ASCII letters, digits, points, hyphens and underscores.
        ended: called at the end.
    """

    status_code = 200

    def __init__(self, value: bytes, name: str, ended: Callable[[], object]) -> None:
        self._value = value
        self._name = name
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        try:
            headers = [
                (b"content-type", b"application/octet-stream"),
                (b"content-length", b"%d" % len(self._value)),
                (b"content-disposition", b'attachment; filename="%s"' % self._name.encode("ascii")),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            pieces = memoryview(self._value)
            for begin in range(0, len(pieces), PIECE_BYTES):
                piece = bytes(pieces[begin : begin + PIECE_BYTES])
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._ended()
