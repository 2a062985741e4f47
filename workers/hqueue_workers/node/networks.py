"""The networks that a process may call into, when callers choose the addresses."""

from __future__ import annotations

import ipaddress

from hqueue import SettingsError

__all__ = ["Networks"]

ANY, PRIVATE = "any", "private"
PRIVATE_NETWORKS = (
    "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7",
)  # fmt: skip
"""Not the link-local ones: at one of those, clouds give a machine's credentials to any caller."""


class Networks:
    """A set of networks.

    Args:
        text: networks with commas between (``10.0.0.0/8,fd00::/8``); ``private`` stands for
            loopback and private networks, ``any`` for all.

    Raises:
        SettingsError: one of them is not a network.
    """

    def __init__(self, text: str) -> None:
        self._all = False
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        for name in filter(None, map(str.strip, text.split(","))):
            self._all = self._all or name == ANY
            if name == ANY:
                continue
            try:
                for network in PRIVATE_NETWORKS if name == PRIVATE else (name,):
                    self._networks.append(ipaddress.ip_network(network))
            except ValueError as exc:
                raise SettingsError(
                    "networks must be written as 10.0.0.0/8,fd00::/8, or be private or any",
                    network=name,
                ) from exc
        if not (self._all or self._networks):
            raise SettingsError("at least one network is needed: private, for example")

    def have(self, address: str) -> bool:
        """Whether an IP address lies in one of them."""
        if self._all:
            return True
        found = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in network for network in self._networks)

    def may_have(self, host: str) -> bool:
        """Whether a host may lie in one of them: an address that does, or a name, which is checked
        when it is resolved.
        """
        try:
            return self.have(host)
        except ValueError:
            return True
