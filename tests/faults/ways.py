"""Ways to HBase that lose things: proxies before region servers, or before gateways.

The specification of a process says which proxy stands before which region server, and
`install` lets its clients go there. Only tests know of this: the library has no such setting.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping

import hqueue.hbase.native
from hqueue import Settings
from hqueue.hbase.native.native_store import NativeStore
from hqueue.hbase.native.opening import Route
from hqueue.hbase.native.wire import CLIENT
from hqueue.local import LocalServer
from hqueue.settings.addresses import Address
from tests.support.native_proxies import NativeProxies
from tests.support.proxy import Fate, Proxies

__all__ = ["GatewayWays", "NativeWays", "Ways", "install", "route_by", "ways_to"]


class GatewayWays:
    """Proxies before all gateways."""

    target = "all gateways"
    addresses: Mapping[str, str] = {}

    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies

    def settings(self) -> Settings:
        return self._proxies.settings()

    def set_fate(self, fate: Callable[[str], Fate]) -> None:
        self._proxies.set_fate(fate)

    @staticmethod
    def may_hold(method: str) -> bool:
        return method.startswith("check")

    def deliver(self, say: Callable[[str], None]) -> int:
        held = 0
        for proxy in self._proxies:
            try:
                held += proxy.deliver()
            except OSError as exc:
                say(f"a put that was held back found no gateway: {exc}")
        return held


class NativeWays:
    """Proxies before all region servers; the master is reached directly."""

    target = "all region servers"

    def __init__(self, server: LocalServer, proxies: NativeProxies) -> None:
        self._server = server
        self._proxies = proxies
        proxies.holds_conditional_only = True
        self.addresses = {
            str(address): str(proxies.before(address))
            for process in server.processes
            if process.name.startswith("regionserver")
            for address in [Address(process.host, process.ports[process.name])]
        }
        """Of each region server, by its own address, the proxy's."""

    def settings(self) -> Settings:
        return self._server.settings()

    def set_fate(self, fate: Callable[[str], Fate]) -> None:
        self._proxies.fate = fate

    @staticmethod
    def may_hold(method: str) -> bool:
        return method == "Mutate"

    def deliver(self, say: Callable[[str], None]) -> int:
        try:
            return self._proxies.deliver()
        except OSError as exc:
            say(f"a put that was held back found no region server: {exc}")
            return 0


Ways = GatewayWays | NativeWays


@contextlib.contextmanager
def ways_to(server: LocalServer) -> Iterator[Ways]:
    """Proxies before its gateways if it has any, and before its region servers otherwise."""
    if server.gateways:
        with Proxies(server) as proxies:
            yield GatewayWays(proxies)
    else:
        with contextlib.closing(NativeProxies()) as native:
            yield NativeWays(server, native)


def route_by(addresses: Mapping[str, str]) -> Route:
    """Leads to proxies where a region server is meant.

    A region server without a proxy is refused: no request may pass by the proxies.
    """

    def route(address: Address, service: str) -> Address:
        if service != CLIENT:
            return address
        proxy = addresses.get(str(address))
        if proxy is None:
            raise ConnectionRefusedError(f"no proxy stands before {address}")
        host, _, port = proxy.rpartition(":")
        return Address(host, int(port))

    return route


def install(addresses: Mapping[str, str]) -> None:
    """Let all clients that this process opens from now on go through these proxies, if any."""
    if addresses:
        made = functools.partial(NativeStore, route=route_by(addresses))
        hqueue.hbase.native.NativeStore = made  # type: ignore[assignment,misc]
