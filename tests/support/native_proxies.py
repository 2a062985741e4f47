"""Region servers and masters that lose things: proxies that know HBase's RPC.

Each request has a fate of its own, also where several are under way on one connection. With a relay
they stand before servers with Kerberos and TLS, too.
"""

from __future__ import annotations

import collections
import contextlib
import socket
import threading
from collections.abc import Callable

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.wire import LENGTH, preamble, varint
from hqueue.hbase.native.zookeeper_registry import ReadNode
from hqueue.runtime.steps import Wait
from hqueue.settings.addresses import Address
from tests.support.proxy import Fate
from tests.support.secured_relays import Passing, SecuredRelay, exactly, frame

__all__ = ["CLUSTER_ID_NODE", "NativeProxies"]

CLUSTER_ID_NODE = "hbaseid"

TIMEOUT_S = 60


class NativeProxies:
    """Proxies before all servers of a cluster, made when they are first spoken to: `route` leads to
    them, as a `Route`.

    Args:
        relay: how they stand before servers with Kerberos and TLS; None before others.
    """

    def __init__(self, relay: SecuredRelay | None = None) -> None:
        self.relay = relay
        self.fate: Callable[[str], Fate] = lambda method: Fate.PASS
        self.calls: collections.Counter[str] = collections.Counter()
        """How often each method was called."""
        self.holds_conditional_only = False
        """Whether a request that should be held is lost instead, if it is no conditional change."""
        self._down = False
        self._held: list[tuple[Address, bytes, bytes]] = []
        self._lock = threading.Lock()
        self._proxies: dict[Address, _Proxy] = {}

    def route(self, address: Address, service: str) -> Address:
        """Where the proxy before a server listens, unless the way is cut."""
        if self._down:
            raise ConnectionRefusedError("the way is cut")
        return self.before(address)

    def read_node(self, read: ReadNode, path: str) -> Wait:
        """A node of ZooKeeper's. That of the cluster's ID has a fate, as a method has; what is lost
        is an error at once.
        """
        name = path.rpartition("/")[2]
        if name == CLUSTER_ID_NODE and self.decide(name) is not Fate.PASS:
            raise StoreUnavailableError("the node was lost", outcome=Outcome.NOT_APPLIED, path=path)
        return read(path)

    def before(self, address: Address) -> Address:
        """Where the proxy before this server listens."""
        with self._lock:
            proxy = self._proxies.get(address)
            if proxy is None:
                proxy = self._proxies[address] = _Proxy(address, self)
        return Address("127.0.0.1", proxy.port)

    def cut(self) -> None:
        """Let no request leave, for good."""
        self._down = True
        self.break_connections()

    def break_connections(self) -> None:
        """Close every connection there is."""
        with self._lock:
            proxies = list(self._proxies.values())
        for proxy in proxies:
            proxy.break_connections()

    def close(self) -> None:
        self.cut()
        for proxy in self._proxies.values():
            proxy.close()

    def deliver(self) -> int:
        """Send the servers what was held; returns how many requests that were, each answered.

        Raises:
            OSError: one was not answered; the others were sent all the same.
        """
        with self._lock:
            held, self._held = self._held, []
        failure: OSError | None = None
        for address, header, request in held:
            try:
                if self.relay is not None:
                    self.relay.deliver(address, header, request, TIMEOUT_S)
                    continue
                with socket.create_connection(address, timeout=TIMEOUT_S) as late:
                    late.sendall(preamble() + header + request)
                    if not late.recv(1):
                        raise ConnectionError("the server closed the connection without an answer")
            except OSError as exc:
                failure = exc
        if failure is not None:
            raise failure
        return len(held)

    def hold(self, address: Address, header: bytes, request: bytes) -> None:
        with self._lock:
            self._held.append((address, header, request))

    def decide(self, method: str) -> Fate:
        with self._lock:
            self.calls[method] += 1
        return self.fate(method)


class _Proxy:
    """One server's."""

    def __init__(self, address: Address, proxies: NativeProxies) -> None:
        self._address = address
        self._proxies = proxies
        self._sockets: set[Passing] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_connections()

    def break_connections(self) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            _end(each)

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(self._address, timeout=TIMEOUT_S)
            except OSError:
                return
            with server:
                server.settimeout(None)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with contextlib.suppress(OSError):
                    if self._proxies.relay is None:
                        self._pass(client, server)
                    else:
                        with self._proxies.relay.wrapped(client, server) as both:
                            self._pass(*both)

    def _pass(self, client: Passing, server: Passing) -> None:
        with self._lock:
            self._sockets |= {client, server}
        fates: dict[int, Fate] = {}
        back = threading.Thread(target=self._answers, args=(client, server, fates), daemon=True)
        try:
            server.sendall(exactly(client, len(preamble())))
            if self._proxies.relay is not None:
                self._proxies.relay.shake(client, server)
            header = frame(client)
            server.sendall(header)
            back.start()
            self._requests(client, server, header, fates)
        finally:
            _end(client)
            _end(server)
            if back.ident is not None:
                back.join()
            with self._lock:
                self._sockets -= {client, server}

    def _requests(
        self, client: Passing, server: Passing, begin: bytes, fates: dict[int, Fate]
    ) -> None:
        while True:
            request = frame(client)
            first = _delimited(request[LENGTH.size :])
            header = pb.RequestHeader.FromString(first)
            fate = self._proxies.decide(header.method_name)
            if fate is Fate.HOLD and self._proxies.holds_conditional_only:
                rest = request[LENGTH.size + len(varint(len(first))) + len(first) :]
                if not pb.MutateRequest.FromString(_delimited(rest)).HasField("condition"):
                    fate = Fate.LOSE_REQUEST
            fates[header.call_id] = fate
            if fate is Fate.HOLD:
                self._proxies.hold(self._address, begin, request)
            if fate in (Fate.HOLD, Fate.LOSE_REQUEST):
                return
            server.sendall(request)

    @staticmethod
    def _answers(client: Passing, server: Passing, fates: dict[int, Fate]) -> None:
        with contextlib.suppress(OSError):
            while True:
                answer = frame(server)
                header = pb.ResponseHeader.FromString(_delimited(answer[LENGTH.size :]))
                fate = fates.pop(header.call_id, Fate.PASS)
                if fate is Fate.LOSE_ANSWER:
                    break
                if fate is not Fate.HANG:
                    client.sendall(answer)
        _end(client)
        _end(server)


def _end(opened: Passing) -> None:
    with contextlib.suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)


def _delimited(data: bytes) -> bytes:
    """The first message of a frame; its length stands before it."""
    length = at = shift = 0
    while True:
        length |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return data[at : at + length]
