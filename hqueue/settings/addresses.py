"""Where servers listen, and how that is written."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from hqueue.errors import InvalidInputError, SettingsError
from hqueue.settings.numbers import whole_number

__all__ = ["Address", "GatewayAddress"]


class Address(NamedTuple):
    """Where a Thrift server listens. Written ``host:port``; IPv6 hosts stand in brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read what ``str(address)`` gave.

        Raises:
            InvalidInputError: it is no host and port.
        """
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if (
            not colon
            or not host
            or any(c.isspace() for c in host)
            or not _resolvable(host)
            or not (port.isascii() and port.isdecimal() and 1 <= int(port[:6]) <= 65_535)
        ):
            raise InvalidInputError("an address is written host:port", address=text)
        return cls(host, int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def _resolvable(host: str) -> bool:
    """Whether a resolver takes it: what it refuses is no `OSError`, and would end who asks it."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayAddress:
    """A host that runs HBase's Thrift gateways, with the port of each of the two.

    Written ``host:thrift1_port/thrift2_port``; IPv6 hosts stand in brackets.
    """

    host: str
    thrift1_port: int = 9090
    thrift2_port: int = 9091

    def __post_init__(self) -> None:
        if not self.host or any(c.isspace() or c in "/,[]" for c in self.host):
            raise SettingsError("a gateway needs a host name", host=self.host)
        for port in (self.thrift1_port, self.thrift2_port):
            if not 1 <= port <= 65_535:
                raise SettingsError("a port is a number from 1 to 65535", port=port)

    @classmethod
    def parse(cls, text: str) -> GatewayAddress:
        """Read ``host``, or ``host:thrift1_port/thrift2_port``."""
        text = text.strip()
        host, colon, ports = text.rpartition(":")
        if not colon or (text.startswith("[") and text.endswith("]")):
            return cls(text.strip("[]"))
        first, slash, second = ports.partition("/")
        thrift1_port, thrift2_port = whole_number(first), whole_number(second)
        if not slash or thrift1_port is None or thrift2_port is None:
            raise SettingsError("a gateway is written host:thrift1_port/thrift2_port", gateway=text)
        return cls(host.strip("[]"), thrift1_port, thrift2_port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.thrift1_port}/{self.thrift2_port}"
