"""A hub's settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hqueue import InvalidInputError, SettingsError
from hqueue.net.quotas import QuotaRules
from hqueue.settings.addresses import PORT_MAX
from hqueue.settings.fields import check_fields
from hqueue.settings.loading import load_role_settings
from hqueue.settings.names import names_in
from hqueue_workers.hub.authorizer import AllowAll, Authorizer, ByACL, ByRules, NameRules
from hqueue_workers.node.access_control import AccessControl
from hqueue_workers.node.access_settings import ALL, RULES, check_administrators
from hqueue_workers.node.api_settings import API_BOUNDS, ApiSettings
from hqueue_workers.node.hosts import fill_hosts
from hqueue_workers.node.networks import Networks

__all__ = ["UNIFORM", "HubSettings"]

ACL = "acl"
BY_LOAD, UNIFORM = "load", "uniform"

_BOUNDS = {
    "port": (0, PORT_MAX),
    "metrics_port": (0, PORT_MAX),
    "threads": (1, 256),
    "connections_max": (1, 100_000),
    "topics_max": (1, 10_000_000),
    "topic_creations_per_hour_max": (1, 1_000_000_000),
    "pending_bytes_max": (1024 * 1024, 2**40),
    "balance_ms": (100, 86_400_000),
    "drain_ms": (0, 600_000),
    "subscriptions_max": (1, 10_000_000),
    "deliveries_max": (1, 10_000),
    "session_ms": (1_000, 3_600_000),
    **API_BOUNDS,
}


@dataclasses.dataclass(frozen=True)
class HubSettings(ApiSettings):
    """All settings of a hub. Frozen, and checked when made. Times are in milliseconds.

    Each comes from the first of these sources that has it: an option of ``hqueue hub``, an
    environment variable (``HQUEUE_HUB_`` and the name in capitals), the table ``[hub]`` of the
    settings file, a running local server's connection file, the default. The servers' addresses are
    in `hqueue.Settings`.

    Raises:
        SettingsError: a setting has a wrong value.
    """

    host: str = ""
    """The host under which clients and other hubs reach this hub. If neither it nor `listen_host`
    is given, loopback: only this machine reaches the hub. With `listen_host` alone, the machine's
    host name. Topics are placed in partitions whose region is on this host, as HBase names it.
    """

    listen_host: str = ""
    """The host to listen on, if it differs from `host`; ``0.0.0.0`` for all interfaces."""

    port: int = 9_190
    """The port for clients; a free port if 0."""

    metrics_host: str = "127.0.0.1"
    """The address that serves health and metrics; ``0.0.0.0`` for all interfaces."""

    metrics_port: int = 9_191
    """The port of health and metrics; a free port if 0."""

    threads: int = 16
    """How many calls to handle at a time; four times as many topics may be taken over at a time. A
    publish that waits for the log uses no thread.
    """

    connections_max: int = 10_000
    """How many connections of clients may be open at a time. Each further one replaces the oldest
    idle one.
    """

    topics_max: int = 1_000_000
    """How many topics of each queue the hub may own at a time. For metadata in ZooKeeper see
    docs/inside-metadata.md.
    """

    topic_creations_per_hour_max: int = 1_000_000
    """How many topics a caller may create in a queue per hour, and how many subscriptions. A caller
    may create an hour's number at once. All callers of one address together may create four times
    as many, and all callers 16 times as many. Further creations are refused as busy.
    """

    pending_bytes_max: int = 64 * 1024 * 1024
    """How many bytes may wait for an append. Beyond that, publishes are refused as busy."""

    balance_ms: int = 10_000
    """How often the hub reports its load, claims partitions, and sheds topics where it has more
    than its share."""

    placement_policy: str = BY_LOAD
    """Which hub gets a topic without an owner: ``load`` (a random hub, preferring hubs with less
    load) or ``uniform`` (a random hub with equal chances).
    """

    drain_ms: int = 10_000
    """How long the hub waits for calls under way when it stops."""

    subscriptions_max: int = 1_000_000
    """How many subscriptions of each queue may be attached at a time. Further ones are refused as
    busy."""

    deliveries_max: int = 64
    """How many calls to subscribers of each queue may be under way at a time. Each holds 256 KiB of
    messages, or one larger message.
    """

    session_ms: int = 60_000
    """How long a subscriber's session may be silent before it expires."""

    authorizer: str = ALL
    """Who may do what: ``all`` (everybody may do everything), ``acl`` (each topic's ACL decides,
    which ``hqueue topics acl`` sets) or ``rules`` (both the access rules, which ``hqueue access``
    changes, and the topic's ACL must allow it). ACLs decide by principals if the connection has
    ``tls``, and else by the names that callers give without proof; rules need ``tls``.
    """

    creators: str = "*"
    """With ``acl``, the callers that may create topics: names with commas between. A name that ends
    with ``*`` stands for all names that begin with the text before it.
    """

    administrators: str = ""
    """With ``acl`` and ``rules``, the callers that may do everything: names as for `creators`."""

    names: str = ""
    """With the connection's ``tls``, the names that principals may use as publishers of idempotent
    publishes and as subscribers, beside their own: ``principal:name`` with commas between, and
    ``*`` at the end of either for anything that may follow. Administrators may use all names.
    """

    callback_networks: str = "private"
    """The networks in which subscribers may receive messages, since a caller may give any address:
    networks with commas between (``10.0.0.0/8,fd00::/8``), ``private`` for loopback and private
    networks, or ``any``.
    """

    def __post_init__(self) -> None:
        check_fields(self, _BOUNDS)
        if self.authorizer not in (ALL, ACL, RULES):
            raise SettingsError("authorizer must be all, acl or rules", authorizer=self.authorizer)
        self.make_authorizer()
        NameRules(self.names, self.administrators)
        Networks(self.callback_networks)
        QuotaRules(self.quotas)
        if self.placement_policy not in (BY_LOAD, UNIFORM):
            raise SettingsError(
                "placement_policy must be load or uniform", placement_policy=self.placement_policy
            )
        fill_hosts(self)

    def make_authorizer(self, access: AccessControl | None = None) -> Authorizer:
        """Make the authorizer that the settings choose.

        Args:
            access: the access rules; None if they are not used.
        """
        administrators = check_administrators(self.administrators)
        try:
            acls = ByACL(names_in(self.creators), administrators)
        except InvalidInputError as exc:
            raise SettingsError(exc.text, creators=self.creators) from exc
        if access is not None:
            return ByRules(access, acls)
        return acls if self.authorizer == ACL else AllowAll()

    @classmethod
    def load(
        cls, arguments: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
    ) -> HubSettings:
        """Gather the settings from all sources.

        Raises:
            SettingsError: a setting is unknown or has a wrong value.
        """
        return load_role_settings(cls, "hub", arguments, environ)
