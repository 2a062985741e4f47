"""Looks up host names, forwards and backwards."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Iterator

from hqueue.doctor.findings import Finding, ok, warning, wrong
from hqueue.doctor.subject import Subject
from hqueue.settings.addresses import zookeeper_servers

__all__ = ["check_names", "look_up"]


def check_names(subject: Subject) -> Iterator[Finding]:
    """Look up this machine's name, and the host names in the settings."""
    settings = subject.settings
    host = socket.gethostname()
    try:
        addresses = _addresses_of(host)
    except OSError as exc:
        yield warning(
            "names",
            f"this machine's own name, {host}, has no address: {exc}",
            "add it to the name service or /etc/hosts, or set host for workers, hubs and "
            "subscribers: others call this process by this name",
        )
    else:
        yield ok("names", f"this machine, {host}, has the address {', '.join(addresses)}")
    hosts = [server.host for server in zookeeper_servers(settings.zookeeper)]
    hosts += [master.host for master in settings.hbase_masters]
    if settings.hbase == "gateways":
        hosts += [gateway.host for gateway in settings.gateways]
    hosts += [hub.host for hub in subject.hubs]
    yield from look_up(hosts, by_kerberos=subject.is_proven)


def look_up(hosts: Iterable[str], *, by_kerberos: bool) -> Iterator[Finding]:
    """Look up the hosts that this process calls.

    Args:
        hosts: their names, or addresses.
        by_kerberos: whether this process gets Kerberos tickets for these names.
    """
    for host in dict.fromkeys(hosts):
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            continue  # There is nothing to look up.
        try:
            addresses = _addresses_of(host)
        except OSError as exc:
            yield wrong(
                "names",
                f"{host} has no address: {exc}",
                "correct the name in the settings, or add it to the name service or /etc/hosts",
            )
            continue
        backwards = _name_of(addresses[0]) if by_kerberos else None
        if backwards is not None and not _is_same(host, backwards):
            yield warning(
                "names",
                f"{host} has the address {addresses[0]}, whose name is {backwards}",
                "make both names agree, in DNS or /etc/hosts: HQueue gets a ticket for the name in "
                "the settings, and HBase's Java clients get one for the other name",
            )
        else:
            yield ok("names", f"{host} has the address {', '.join(addresses)}")


def _addresses_of(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def _name_of(address: str) -> str | None:
    try:
        return socket.gethostbyaddr(address)[0]
    except OSError:
        return None


def _is_same(host: str, other: str) -> bool:
    """Return whether two names are of one host: one may leave out the domain."""
    host, other = (each.lower().removesuffix(".") for each in (host, other))
    short, long = sorted((host, other), key=len)
    return host == other or ("." not in short and long.startswith(f"{short}."))
