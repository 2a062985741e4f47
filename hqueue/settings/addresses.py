"""Where servers listen, and how that is written."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import re
from typing import NamedTuple

from hqueue.errors import InvalidInputError, SettingsError
from hqueue.settings.limits import HOST_LENGTH_MAX
from hqueue.settings.numbers import check_whole, is_whole, whole_number

__all__ = [
    "PORT_MAX",
    "Address",
    "GatewayAddress",
    "is_host",
    "master_address",
    "zookeeper_servers",
]

PORT_MAX = 65_535
ZOOKEEPER_PORT = 2_181
MASTER_PORT = 16_000


class Address(NamedTuple):
    """A server's address, written ``host:port``. IPv6 hosts are written in brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address from its text, ``host:port``.

        Raises:
            InvalidInputError: the text is not a host and a port.
        """
        if not isinstance(text, str):
            raise InvalidInputError("an address must be written as host:port", address=text)
        if len(text) > HOST_LENGTH_MAX + len("[]:65535"):
            raise InvalidInputError(
                "a host's name is too long", address=text[:80], length_max=HOST_LENGTH_MAX
            )
        host, rest = _split(text)
        port = whole_number(rest or "")
        if not is_host(host) or not is_whole(port, 1, PORT_MAX):
            raise InvalidInputError("an address must be written as host:port", address=text)
        return cls(host, port)

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"


Address.host.__doc__ = "The host's name, or its IP address without brackets."
Address.port.__doc__ = "The port."


def zookeeper_servers(hosts: str) -> list[Address]:
    """The servers of a ZooKeeper, written ``host:port,host:port/path``; port 2181 where none is.

    Raises:
        InvalidInputError: one of them is not a host and a port.
    """
    return [
        _with_port(written.strip(), ZOOKEEPER_PORT)
        for written in hosts.partition("/")[0].split(",")
    ]


def master_address(text: str) -> Address:
    """A master of HBase's, written ``host:port``; port 16000 where none is.

    Raises:
        SettingsError: it is not a host and a port.
    """
    try:
        return _with_port(text.strip(), MASTER_PORT)
    except InvalidInputError as exc:
        raise SettingsError("a master must be written as host or host:port", master=text) from exc


def _with_port(text: str, port: int) -> Address:
    """An address, with this port where none is written."""
    return Address.parse(f"{text}:{port}" if _split(text)[1] is None else text)


def _split(text: str) -> tuple[str, str | None]:
    """A host without its brackets, and what follows its colon; None if it has no colon. No host
    where something with colons is not an IPv6 address in brackets.
    """
    host, colon, rest = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, colon, rest = text, "", ""
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare and not (host.startswith("[") and host.endswith("]") and _is_ipv6(bare)):
        bare = ""
    return bare, rest if colon else None


def _is_ipv6(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.IPv6Address(host))
    return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_host(host: object) -> bool:
    """Whether something can be the name of a host, or is an IP address."""
    return (
        isinstance(host, str)
        and 0 < len(host) <= HOST_LENGTH_MAX
        and host.isprintable()
        and not any(c.isspace() for c in host)
        and (not _is_numbers(host) or _is_ipv4(host))
        and _resolvable(host)
    )


_NUMBER = re.compile(r"0x[0-9a-f]*|\d+", re.IGNORECASE)


def _is_numbers(host: str) -> bool:
    """Whether resolvers take it for an address in another spelling: ``8.8`` is 8.0.0.8."""
    return all(_NUMBER.fullmatch(part) for part in host.removesuffix(".").split("."))


def _is_ipv4(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ipaddress.IPv4Address(host))
    return False


def _resolvable(host: str) -> bool:
    """Whether a resolver takes it: what it refuses is not an `OSError`, and would end who asks
    it.
    """
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayAddress:
    """A host that runs HBase's Thrift gateways, with the port of each of the two.

    Written ``host:thrift1_port/thrift2_port``; IPv6 hosts are written in brackets.
    """

    host: str
    thrift1_port: int = 9090
    thrift2_port: int = 9091

    def __post_init__(self) -> None:
        if not isinstance(self.host, str):
            raise SettingsError("a gateway needs a host name", host=self.host)
        if not is_host(self.host) or any(c in "/,[]" for c in self.host):
            raise SettingsError("a gateway needs a host name", host=self.host)
        for name in ("thrift1_port", "thrift2_port"):
            given = getattr(self, name)
            port = check_whole(given, 1, PORT_MAX, error=SettingsError, setting="gateways")
            object.__setattr__(self, name, port)

    @classmethod
    def parse(cls, text: str) -> GatewayAddress:
        """The address from its text: ``host``, or ``host:thrift1_port/thrift2_port``."""
        if not isinstance(text, str):
            raise SettingsError(
                "a gateway must be written as host:thrift1_port/thrift2_port", gateway=text
            )
        host, ports = _split(text.strip())
        if ports is None:
            return cls(host)
        first, _, second = ports.partition("/")
        thrift1_port, thrift2_port = whole_number(first), whole_number(second)
        if thrift1_port is None or thrift2_port is None:
            raise SettingsError(
                "a gateway must be written as host:thrift1_port/thrift2_port", gateway=text
            )
        return cls(host, thrift1_port, thrift2_port)

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.thrift1_port}/{self.thrift2_port}"
