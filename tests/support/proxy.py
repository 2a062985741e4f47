"""Servers that lose things: a TCP proxy before a server's port, such as those of its gateways.

It knows where a request begins, because a Thrift client sends the next one only after the answer
to the last; and which method it calls, because that stands in its first bytes (buffered
transport, binary protocol). What isn't Thrift has requests without a method.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol

from hqueue import GatewayAddress, Settings

__all__ = ["Fate", "Proxies", "Proxy", "Served"]

CHUNK_BYTES = 256 * 1024


class Fate(enum.Enum):
    """What becomes of a request."""

    PASS = "it is answered"
    LOSE_REQUEST = "the connection breaks before the gateway gets it"
    LOSE_ANSWER = "the gateway does it, and the connection breaks before the answer comes"
    HOLD = "the connection breaks, and the gateway gets it when `Proxy.deliver` is called"
    HANG = "the gateway does it, and no answer ever comes"


class Proxy:
    """One port of a server.

    Args:
        host: where to listen: the server's own host, so that clients see it as near as that.
        target: where the server listens.
        fate: asked for each request, by its method.
        thrift: whether Thrift is spoken there.
    """

    def __init__(
        self,
        host: str,
        target: tuple[str, int],
        fate: Callable[[str], Fate] | None = None,
        *,
        thrift: bool = True,
    ) -> None:
        self._target = target
        self._thrift = thrift
        self.fate: Callable[[str], Fate] = fate or (lambda method: Fate.PASS)
        self.calls: collections.Counter[str] = collections.Counter()
        """How often each method was called."""
        self.answer_bytes = 0
        self._held: list[bytes] = []
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._closed = False
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def reset(self) -> None:
        """Count from zero."""
        self.calls.clear()
        self.answer_bytes = 0

    def deliver(self) -> int:
        """Send the gateway what was held, each over a connection of its own; returns how many.

        When this returns, the gateway has answered each.

        Raises:
            OSError: it did not answer one of them.
        """
        with self._lock:
            held, self._held = self._held, []
        for request in held:
            with socket.create_connection(self._target, timeout=60) as late:
                late.sendall(request)
                if not late.recv(1):
                    raise ConnectionError("the gateway closed the connection without an answer")
        return len(held)

    def break_connections(self) -> None:
        """Close every connection there is."""
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_connections()

    def _listen(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            gateway = socket.create_connection(self._target, timeout=60)
        except OSError:
            client.close()
            return
        gateway.settimeout(None)
        for each in (client, gateway):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._sockets |= {client, gateway}
        try:
            self._relay(client, gateway)
        except OSError:
            pass
        finally:
            with self._lock:
                self._sockets -= {client, gateway}
            client.close()
            gateway.close()

    def _relay(self, client: socket.socket, gateway: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ)
            selector.register(gateway, selectors.EVENT_READ)
            fate, answered = Fate.PASS, True
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(CHUNK_BYTES)  # type: ignore[union-attr]
                    if not data:
                        return
                    if key.fileobj is client:
                        if answered:
                            answered = False
                            method = _method_of(data) if self._thrift else ""
                            self.calls[method] += 1
                            fate = self.fate(method)
                        if fate is Fate.LOSE_REQUEST:
                            return
                        if fate is Fate.HOLD:
                            self._hold(client, data)
                            return
                        gateway.sendall(data)
                    elif fate is Fate.LOSE_ANSWER:
                        return
                    elif fate is not Fate.HANG:
                        answered = True
                        self.answer_bytes += len(data)
                        client.sendall(data)

    def _hold(self, client: socket.socket, data: bytes) -> None:
        """Take in the rest of a request, which has come when nothing more comes for a while."""
        client.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while more := client.recv(CHUNK_BYTES):
                data += more
        with self._lock:
            self._held.append(data)


def _method_of(data: bytes) -> str:
    assert len(data) >= 8, "a request's first bytes came one by one"
    (length,) = struct.unpack_from(">i", data, 4)
    return data[8 : 8 + length].decode()


class Served(Protocol):
    """Gateways that are served, and the settings to reach them; as a `LocalServer` has them."""

    @property
    def gateways(self) -> Sequence[GatewayAddress]: ...

    def settings(self, **changes: object) -> Settings: ...


class Proxies:
    """A proxy before every gateway port of a server, and the settings to go through them."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self.thrift1 = [Proxy(g.host, (g.host, g.thrift1_port)) for g in server.gateways]
        self.thrift2 = [Proxy(g.host, (g.host, g.thrift2_port)) for g in server.gateways]

    def __enter__(self) -> Proxies:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for proxy in self:
            proxy.close()

    def __iter__(self) -> Iterator[Proxy]:
        return iter([*self.thrift1, *self.thrift2])

    def settings(self, **changes: object) -> Settings:
        """The settings of a client that goes through the proxies."""
        gateways = tuple(
            GatewayAddress(gateway.host, one.port, two.port)
            for gateway, one, two in zip(
                self._server.gateways, self.thrift1, self.thrift2, strict=True
            )
        )
        return self._server.settings(gateways=gateways, **changes)

    def reset(self) -> None:
        for proxy in self:
            proxy.reset()

    @property
    def answer_bytes(self) -> int:
        return sum(proxy.answer_bytes for proxy in self)

    def set_fate(self, fate: Callable[[str], Fate]) -> None:
        for proxy in self:
            proxy.fate = fate
