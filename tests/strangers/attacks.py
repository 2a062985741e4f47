"""What strangers do: ``python -m tests.strangers.attacks PORT PROTOCOL SECONDS FOLDER [KIND…]``.

All kinds at once, each in a thread, with a bound on how often and how many. At a port that demands
certificates they attack the handshake, with the certificates in a folder; ``-`` stands for none.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.thrift_calls import HOSTILE, field, head, listed

from .proof import EXPIRED, FORGED, READER, context_of

__all__ = ["KINDS", "TLS_KINDS"]

HOST = "127.0.0.1"
METHODS = {
    "hub": b"publishMessages",
    "api": b"putMessages",
    "subscriber": b"consumeMessages",
    "notified": b"appended",
    "health": b"GET",
}
MESSAGES_FIELD = {"hub": 4, "api": 2, "subscriber": 1, "notified": 3, "health": 1}
LONG_BYTES = 4 << 20
HELLO_BYTES = 120_000


class UnreachedError(Exception):
    """There was no place for a connection."""


class Stranger:
    """Attacks one port.

    Args:
        port: the port.
        protocol: what is spoken there.
        seconds: for how long.
        folder: of the certificates, if the port demands them.
    """

    def __init__(self, port: int, protocol: str, seconds: float, folder: Path | None) -> None:
        self._port = port
        self._folder = folder
        if folder is not None:
            names = (None, FORGED, EXPIRED, READER)
            self._contexts = {name: context_of(folder, name) for name in names}
            self._hello = _hello(self._contexts[None])
        self._protocol = protocol
        self._ends_s = time.monotonic() + seconds
        self._random = random.Random(port)
        self.done: dict[str, int] = {}

    def run(self, only: Sequence[str] = ()) -> None:
        """Do it all at once, or some of it."""
        known = KINDS if self._folder is None else TLS_KINDS
        kinds = {name: kind for name, kind in known.items() if not only or name in only}
        threads = [threading.Thread(target=self._repeat, args=each) for each in kinds.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _repeat(self, name: str, kind: tuple[Callable[[Stranger, Kept], None], float]) -> None:
        attack, every_s = kind
        self.done[name] = 0
        with contextlib.closing(Kept()) as kept:
            while time.monotonic() < self._ends_s:
                try:
                    attack(self, kept)
                except UnreachedError:
                    continue
                except OSError:
                    pass  # It was hung up on.
                self.done[name] += 1
                time.sleep(every_s)

    def connect(self) -> socket.socket:
        try:
            connected = socket.create_connection((HOST, self._port), 2)
        except OSError as exc:
            raise UnreachedError from exc
        connected.settimeout(0.5)
        return connected

    def whole(self, data: bytes) -> bytes:
        """A call as its port takes it."""
        return struct.pack(">I", len(data)) + data if self._protocol == "notified" else data

    def begun(self) -> bytes:
        """The head of a call that is right so far."""
        return self.whole(self.head() + bytes(200))[: self._random.randrange(1, 30)]

    def head(self) -> bytes:
        method = METHODS[self._protocol]
        return b"GET /metrics?" if method == b"GET" else head(method)

    def half(self, kept: Kept) -> None:
        kept.add(self.connect(), 300).sendall(self.begun())

    def drip(self, kept: Kept) -> None:
        if len(kept.sockets) < 100:
            kept.add(self.connect(), 100)
        for each in list(kept.sockets):
            try:
                each.sendall(b"\0")
            except OSError:
                kept.drop(each)

    def idle(self, kept: Kept) -> None:
        for _ in range(10):
            kept.add(self.connect(), 3_000)

    def senseless(self, kept: Kept) -> None:
        with self.connect() as one:
            one.sendall(self._random.randbytes(self._random.randrange(1, 5_000)))

    def promise(self, kept: Kept) -> None:
        hostile = self._random.choice(list(HOSTILE.values()))
        with self.connect() as one:
            one.sendall(self.whole(self.head() + hostile))

    def nest(self, kept: Kept) -> None:
        deep = field(15, 1, listed(15, 1) * 20_000) if self._random.random() < 0.5 else b""
        with self.connect() as one:
            one.sendall(self.whole(self.head() + deep + field(12, 1) * 20_000))

    def long_text(self, kept: Kept) -> None:
        text = struct.pack(">i", LONG_BYTES) + b"a" * LONG_BYTES
        with self.connect() as one:
            one.sendall(self.whole(self.head() + b"".join(field(11, n, text) for n in (1, 2, 3))))
            one.sendall(b"\0")
            one.recv(1_000)

    def dense(self, kept: Kept) -> None:
        """As many messages and headers as a call may have, and as little of each."""
        number = MESSAGES_FIELD[self._protocol]
        each = field(15, 6, listed(12, 4, bytes(4))) + b"\0"
        count = 60_000
        with self.connect() as one:
            one.sendall(
                self.whole(self.head() + field(15, number, listed(12, count, each * count)))
            )
            one.sendall(b"\0")
            one.settimeout(5)
            one.recv(1_000)

    def storm(self, kept: Kept) -> None:
        for _ in range(20):
            self.connect().close()

    def never_read(self, kept: Kept) -> None:
        if self._protocol == "health":
            call = b"GET /metrics HTTP/1.1\r\n\r\n"
        elif self._protocol == "hub":
            call = head(b"apiAddress") + b"\0"
        else:
            call = self.whole(self.head() + b"\0")
        one = kept.add(self.connect(), 50)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        one.sendall(call * 1_000)

    def half_handshake(self, kept: Kept) -> None:
        kept.add(self.connect(), 600).sendall(
            self._hello[: self._random.randrange(len(self._hello))]
        )

    def silent_handshake(self, kept: Kept) -> None:
        """Have the server do its part, and say nothing more."""
        kept.add(self.connect(), 300).sendall(self._hello)

    def promised_hello(self, kept: Kept) -> None:
        """The first bytes of a hello that is long: the server makes room for it."""
        promise = b"\1" + HELLO_BYTES.to_bytes(3, "big") + b"\3\3"
        kept.add(self.connect(), 3_000).sendall(
            b"\x16\3\1" + len(promise).to_bytes(2, "big") + promise
        )

    def drip_handshake(self, kept: Kept) -> None:
        if len(kept.sockets) < 100:
            kept.add(self.connect(), 100)
            self._dripped = 0
        said = self._hello[self._dripped % len(self._hello) :][:1]
        self._dripped += 1
        for each in list(kept.sockets):
            try:
                each.sendall(said)
            except OSError:
                kept.drop(each)

    def shake(self, name: str | None) -> ssl.SSLSocket:
        return self._contexts[name].wrap_socket(self.connect(), server_hostname=HOST)

    def refused(self, kept: Kept) -> None:
        """Handshakes that the server refuses at their end."""
        name = self._random.choice((None, EXPIRED, FORGED))
        with self.shake(name) as one:
            one.recv(1_000)

    def without_right(self, kept: Kept) -> None:
        """A call of one that may not call, and then silence."""
        one = kept.add(self.shake(READER), 300)
        one.sendall(self.whole(self.head() + b"\0"))

    def renegotiate(self, kept: Kept) -> None:
        assert self._folder is not None
        own = self._folder / f"{READER}.pem"
        command = ["openssl", "s_client", "-tls1_2", "-connect", f"{HOST}:{self._port}"]
        subprocess.run(
            [*command, "-cert", str(own)], input=b"R\n" * 5, capture_output=True, timeout=20,
            check=False,
        )  # fmt: skip

    def long_hello(self, kept: Kept) -> None:
        """A hello as long as it may be, in records of a byte and in long ones."""
        body = b"\1" + HELLO_BYTES.to_bytes(3, "big") + b"\3\3" + bytes(HELLO_BYTES - 2)
        size = self._random.choice((1, 16_384))
        pieces = (
            body[at : at + size] for at in range(0, len(body) // (1 if size > 1 else 10), size)
        )
        data = b"".join(b"\x16\3\1" + len(each).to_bytes(2, "big") + each for each in pieces)
        with self.connect() as one:
            one.sendall(data)
            one.recv(1_000)


def _hello(context: ssl.SSLContext) -> bytes:
    """What a client says first."""
    said = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname=HOST).do_handshake()
    return said.read()


class Kept:
    """Connections that are kept, the newest ones."""

    def __init__(self) -> None:
        self.sockets: deque[socket.socket] = deque()

    def add(self, one: socket.socket, count_max: int) -> socket.socket:
        self.sockets.append(one)
        while len(self.sockets) > count_max:
            self.sockets.popleft().close()
        return one

    def drop(self, one: socket.socket) -> None:
        self.sockets.remove(one)
        one.close()

    def close(self) -> None:
        for one in self.sockets:
            one.close()


KINDS: dict[str, tuple[Callable[[Stranger, Kept], None], float]] = {
    "half calls": (Stranger.half, 0.02),
    "drips": (Stranger.drip, 0.1),
    "idle thousands": (Stranger.idle, 0.1),
    "senseless frames": (Stranger.senseless, 0.05),
    "huge promises": (Stranger.promise, 0.05),
    "deep nesting": (Stranger.nest, 0.1),
    "long texts": (Stranger.long_text, 0.5),
    "calls of much that is small": (Stranger.dense, 2.0),
    "connection storms": (Stranger.storm, 0.1),
    "answers that nobody reads": (Stranger.never_read, 0.2),
}
"""What is done, and the pause after each time."""
TLS_KINDS: dict[str, tuple[Callable[[Stranger, Kept], None], float]] = {
    "half handshakes": (Stranger.half_handshake, 0.02),
    "handshakes that stand still": (Stranger.silent_handshake, 0.02),
    "hellos that promise much": (Stranger.promised_hello, 0.005),
    "handshakes that drip": (Stranger.drip_handshake, 0.1),
    "handshakes that are refused": (Stranger.refused, 0.005),
    "calls without the right": (Stranger.without_right, 0.05),
    "renegotiation": (Stranger.renegotiate, 1.0),
    "long hellos": (Stranger.long_hello, 0.1),
    "calls in clear": (Stranger.half, 0.02),
    "senseless bytes": (Stranger.senseless, 0.05),
    "connection storms": (Stranger.storm, 0.1),
    "idle thousands": (Stranger.idle, 0.1),
}
"""What is done at a port that demands certificates."""


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, protocol, seconds, folder, *only = sys.argv[1:]
    given = None if folder == "-" else Path(folder)
    stranger = Stranger(int(port), protocol, float(seconds), given)
    stranger.run(only)
    print(json.dumps(stranger.done))


if __name__ == "__main__":
    main()
