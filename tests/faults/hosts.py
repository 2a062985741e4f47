"""Hosts that are apart, on this machine: network namespaces, with a router between them.

Each host has one address and one way out, to the router, and so has this machine itself: the host
of the clients. The router drops what goes from one host to another while they are cut. It drops
silently and in one direction, as a broken network does: the sender gets no error, and what comes
the other way arrives.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from hqueue.local.cluster import ClusterHosts

__all__ = ["CLIENTS", "Hosts", "NoHostsError", "can_have_hosts", "hosts_apart"]

CLIENTS = "clients"
"""This machine, as a host among the others."""

NETWORK = "10.231.{}"
ROUTER_AT = 254
CLIENTS_AT = 253
TIMEOUT_S = 20.0
SETTINGS = Path("/etc/netns")
"""Where `ip netns exec` finds what lies in a namespace's /etc."""


class NoHostsError(Exception):
    """This process may not make hosts that are apart."""


def can_have_hosts() -> bool:
    """Whether this process may make network namespaces, and run programs in them: it tries."""
    if shutil.which("ip") is None:
        return False
    space = f"hq{os.getpid()}-try"
    try:
        _ip("netns", "add", space)
        try:
            _ip("netns", "exec", space, "true")
        finally:
            _ip("netns", "del", space)
    except subprocess.CalledProcessError:
        return False
    return True


class Hosts:
    """Hosts, and what cuts them from each other. Thread-safe. Cuts may overlap.

    Args:
        prefix: of the names of their namespaces.
        network: the first three bytes of their addresses.
        names: their names, without `CLIENTS`.
    """

    def __init__(self, prefix: str, network: str, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._router = f"{prefix}-router"
        self._spaces = {name: f"{prefix}-{name}" for name in names}
        self._gate = f"{network}.{ROUTER_AT}"
        self._addresses = {name: f"{network}.{n}" for n, name in enumerate(names, 1)}
        self._addresses[CLIENTS] = f"{network}.{CLIENTS_AT}"
        self._link = f"{prefix[:11]}-out"
        self._changing = threading.Lock()
        self._cuts: Counter[tuple[str, str]] = Counter()

    def of_cluster(self) -> ClusterHosts:
        """Where the processes of a cluster run."""
        return ClusterHosts(
            {name: self._addresses[name] for name in self.names},
            lambda name: ("ip", "netns", "exec", self._spaces[name]),
        )

    def address(self, name: str) -> str:
        """The address of a host."""
        return self._addresses[name]

    def make(self) -> None:
        """Make the namespaces and the ways between them."""
        _ip("netns", "add", self._router)
        _ip("-n", self._router, "link", "set", "lo", "up")
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        _ip("netns", "exec", self._router, "sh", "-c", forward)
        for number, name in enumerate(self.names, 1):
            space = self._spaces[name]
            _ip("netns", "add", space)
            # Names of addresses are looked up at each connection. Nobody answers: that shall be
            # known at once.
            settings = SETTINGS / space
            settings.mkdir(parents=True)
            (settings / "resolv.conf").write_text("nameserver 127.0.0.1\n", encoding="utf-8")
            _ip("-n", space, "link", "set", "lo", "up")
            inside = ("-n", space)
            peer = ("netns", self._router)
            _ip("link", "add", "out", *("netns", space), "type", "veth", *self._peer(number, peer))
            self._connect(inside, "out", number, self._addresses[name])
            _ip(*inside, "route", "add", "default", "via", self._gate)
        _ip("link", "add", self._link, "type", "veth", *self._peer(0, ("netns", self._router)))
        self._connect((), self._link, 0, self._addresses[CLIENTS])
        for name in self.names:
            _ip("route", "add", f"{self._addresses[name]}/32", "via", self._gate)

    @staticmethod
    def _peer(number: int, where: Sequence[str]) -> tuple[str, ...]:
        return ("peer", "name", f"to{number}", *where)

    def _connect(self, inside: Sequence[str], link: str, number: int, address: str) -> None:
        router = ("-n", self._router)
        _ip(*inside, "addr", "add", f"{address}/32", "dev", link)
        _ip(*inside, "link", "set", link, "up")
        _ip(*inside, "route", "add", f"{self._gate}/32", "dev", link)
        _ip(*router, "addr", "add", f"{self._gate}/32", "dev", f"to{number}")
        _ip(*router, "link", "set", f"to{number}", "up")
        _ip(*router, "route", "add", f"{address}/32", "dev", f"to{number}")

    def remove(self) -> None:
        """Remove whatever is there of them; nothing must run in them any more."""
        for space in (*self._spaces.values(), self._router):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", space)
            shutil.rmtree(SETTINGS / space, ignore_errors=True)
        with contextlib.suppress(OSError):  # Others may have settings there.
            SETTINGS.rmdir()

    def cut(self, sources: Collection[str], targets: Collection[str]) -> None:
        """Drop all that goes from these hosts to those, until it is mended. One way."""
        with self._changing:
            for pair in _pairs(sources, targets):
                self._cuts[pair] += 1
                if self._cuts[pair] == 1:
                    self._rule("add", *pair)

    def mend(self, sources: Collection[str], targets: Collection[str]) -> None:
        """Undo a `cut`. What another one has cut as well stays cut until that is mended, too."""
        with self._changing:
            for pair in _pairs(sources, targets):
                self._cuts[pair] -= 1
                if self._cuts[pair] == 0:
                    self._rule("del", *pair)

    def _rule(self, change: str, source: str, target: str) -> None:
        way = ("from", self._addresses[source], "to", self._addresses[target])
        _ip("-n", self._router, "rule", change, *way, "blackhole")


def _pairs(sources: Collection[str], targets: Collection[str]) -> list[tuple[str, str]]:
    return [(one, other) for one, other in itertools.product(sources, targets) if one != other]


@contextlib.contextmanager
def hosts_apart(names: Sequence[str]) -> Iterator[Hosts]:
    """Hosts of these names, for as long as the context is open.

    Raises:
        NoHostsError: this process may not make them.
    """
    if not can_have_hosts():
        raise NoHostsError("hosts that are apart take root, and ip (of iproute2)")
    network = NETWORK.format(random.SystemRandom().randrange(1, 255))
    hosts = Hosts(f"hq{os.getpid()}", network, names)
    try:
        hosts.make()
        yield hosts
    finally:
        hosts.remove()


def _ip(*arguments: str) -> None:
    subprocess.run(
        ["ip", *arguments],
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
