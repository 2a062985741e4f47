"""A worker's settings."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Mapping

from hqueue import InvalidInputError, SettingsError
from hqueue.metadata import check_name
from hqueue.net.quotas import QuotaRules
from hqueue.settings.addresses import PORT_MAX
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.fields import check_fields
from hqueue.settings.loading import load_role_settings
from hqueue_workers.node.access_settings import ALL, RULES, check_administrators
from hqueue_workers.node.api_settings import API_BOUNDS, ApiSettings
from hqueue_workers.node.hosts import LOOPBACK, fill_hosts

__all__ = ["WorkerSettings"]

_BOUNDS = {
    "port": (0, PORT_MAX),
    "metrics_port": (0, PORT_MAX),
    "threads": (1, 256),
    "memory_bytes_max": (1024 * 1024, 2**40),
    "connections_per_subscriber": (1, 256),
    "poll_ms_max": (5, 60_000),
    "pushed_bytes_max": (0, 2**40),
    "checkpoint_ms": (10, 600_000),
    "drain_ms": (0, 600_000),
    **API_BOUNDS,
}


@dataclasses.dataclass(frozen=True)
class WorkerSettings(ApiSettings):
    """All settings of a worker. Frozen, and checked when made. Times are in milliseconds.

    Each setting comes from the first of these sources that has it: an option of ``hqueue worker``,
    an environment variable (``HQUEUE_WORKER_`` and the name in capitals), the table ``[worker]`` of
    the settings file, a running local server's connection file, the default. The servers' addresses
    are in `hqueue.Settings`.

    Raises:
        SettingsError: a setting has a wrong value.
    """

    name: str = ""
    """The worker's name. Each process needs its own. If empty, the host's name and the port."""

    host: str = ""
    """The host under which producers reach the worker with notifications. If neither it nor
    `listen_host` is given, loopback: only producers on this machine notify the worker. With
    `listen_host` alone, the machine's host name.
    """

    listen_host: str = ""
    """The host to listen on for notifications, if it differs from `host`; ``0.0.0.0`` for all
    interfaces.
    """

    port: int = 0
    """The port for notifications; a free port if 0."""

    notification_principals: str = "*"
    """With the connection's ``tls``, the principals that may notify the worker of appends: names
    with commas between. A name that ends with ``*`` stands for all names that begin with the text
    before it.
    """

    region_host: str = ""
    """The host of the region server on this machine, as HBase names it. If empty, `host`, or the
    machine's host name if that is loopback.
    """

    metrics_host: str = "127.0.0.1"
    """The address that serves health and metrics; ``0.0.0.0`` for all interfaces."""

    metrics_port: int = 9_109
    """The port of health and metrics; a free port if 0."""

    threads: int = 16
    """How many requests to HBase may be under way at a time."""

    memory_bytes_max: int = 256 * 1024 * 1024
    """About how many bytes of messages may wait for delivery. Each partition and each subscriber
    has an even share, and may exceed it by one batch.
    """

    connections_per_subscriber: int = 2
    """How many connections to one subscriber, with one call on each, may be open at a time."""

    poll_ms_max: int = 1_000
    """How often an idle partition is polled when no producer sends notifications."""

    pushed_bytes_max: int = 8 * 1024 * 1024
    """How many bytes of batches that came with notifications may wait, for each queue. With 0 they
    are ignored, and every message is read from HBase before it is delivered.
    """

    checkpoint_ms: int = 1_000
    """How often to write checkpoints. When a worker is killed, messages that it delivered since the
    last one come again.
    """

    drain_ms: int = 10_000
    """How long to wait for calls under way when the worker gives up a partition or a subscriber,
    and when the Thrift API ends.
    """

    push: bool = True
    """Whether to deliver to subscribers. If not, the process only serves the Thrift API: it claims
    no partition, is not a worker to others, and needs no ZooKeeper.
    """

    hub_queues: str = ""
    """The queues that this process also serves as a hub: names with commas between; none if empty.
    The hub's own settings are `HubSettings`.
    """

    def __post_init__(self) -> None:
        check_fields(self, _BOUNDS)
        if self.authorizer not in (ALL, RULES):
            raise SettingsError("authorizer must be all or rules", authorizer=self.authorizer)
        check_administrators(self.administrators)
        if not (self.push or self.hub_queue_names) and self.api_port is None:
            raise SettingsError(
                "a worker without push, api_port and hub_queues has nothing to do: set at least "
                "one of them"
            )
        QuotaRules(self.quotas)
        fill_hosts(self)
        if not self.region_host:
            alone = self.host == LOOPBACK
            object.__setattr__(self, "region_host", socket.gethostname() if alone else self.host)
        self._check_names()

    def _check_names(self) -> None:
        try:
            if self.name:
                check_name(self.name)
            names = ",".join(map(check_queue_name, self.hub_queue_names))
            object.__setattr__(self, "hub_queues", names)
        except InvalidInputError as exc:
            raise SettingsError(exc.text, name=self.name, hub_queues=self.hub_queues) from exc

    @property
    def hub_queue_names(self) -> list[str]:
        """The names in `hub_queues`, as a list."""
        return [name.strip() for name in self.hub_queues.split(",") if name.strip()]

    @classmethod
    def load(
        cls, arguments: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
    ) -> WorkerSettings:
        """Gather the settings from all sources.

        Raises:
            SettingsError: a setting is unknown or has a wrong value.
        """
        return load_role_settings(cls, "worker", arguments, environ)
