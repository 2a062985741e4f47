"""Describes what the doctor examines."""

from __future__ import annotations

import dataclasses

from hqueue.settings.addresses import Address
from hqueue.settings.connection import Settings
from hqueue.settings.security import KERBEROS

__all__ = ["Subject"]


@dataclasses.dataclass(frozen=True)
class Subject:
    """A configuration that the doctor examines, and the queue and hubs that it is used for."""

    settings: Settings
    queue: str | None = None
    """A queue whose rights, clock and hubs are checked, too."""
    hubs: tuple[Address, ...] = ()
    """Hubs that are checked; those of the queue if empty."""

    @property
    def is_proven(self) -> bool:
        """Whether this client proves who it is by Kerberos, at HBase, ZooKeeper or both."""
        settings = self.settings
        return KERBEROS in (settings.hbase_authentication, settings.zookeeper_authentication)

    @property
    def is_secured(self) -> bool:
        """Whether any connection is secured, by Kerberos, TLS or credentials."""
        settings = self.settings
        uses_tls = settings.tls or settings.hbase_tls or settings.zookeeper_tls
        has_credentials = bool(settings.zookeeper_auth or settings.zookeeper_auth_file)
        return self.is_proven or uses_tls or has_credentials
