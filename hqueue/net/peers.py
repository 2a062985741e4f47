"""The addresses of those at the other end of connections."""

from __future__ import annotations

import ipaddress

__all__ = ["address_text", "host_of", "network_of"]


def host_of(peer: object) -> str:
    """The IP address in a socket's address; empty for a socket that has none."""
    return str(peer[0]) if isinstance(peer, tuple) else ""


def address_text(peer: object) -> str:
    """A socket's address for people: ``host:port``, with an address of version 6 in brackets."""
    if not isinstance(peer, tuple):
        return str(peer)
    host, port = str(peer[0]), peer[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def network_of(host: str) -> str:
    """An IP address; of version 6 its network of 64 bits, all of which one machine may have."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)
