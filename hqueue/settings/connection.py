"""Settings: the servers' addresses, and the limit of every wait.

A setting comes from the first of these sources that has it: an argument, an environment variable
(``HQUEUE_`` and the name in capitals), the settings file (``HQUEUE_CONFIG``, or ``hqueue.toml`` in
the user's configuration folder), the connection file that a running local server writes, the
default.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from hqueue.errors import HQueueError, InvalidInputError, SettingsError
from hqueue.settings.addresses import Address, GatewayAddress, master_address, zookeeper_servers
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.fields import field_faults, read_field
from hqueue.settings.kinds import check_kind, check_mapping
from hqueue.settings.loading import (
    ROLES,
    FoundSettings,
    local_connection_file,
    prefix_of,
    user_file,
)
from hqueue.settings.port_security import PortSecuritySettings, port_security_faults
from hqueue.settings.security import (
    KERBEROS,
    PROTECTIONS,
    SIMPLE,
    TOKEN,
    read_protections,
    security_faults,
)
from hqueue.settings.zookeeper_security import (
    DIGEST,
    NONE,
    AclEntry,
    Credential,
    zookeeper_security_faults,
)

__all__ = [
    "AclEntry",
    "Credential",
    "Settings",
    "found_settings",
    "setting_source",
    "settings_faults",
]

ENVIRONMENT_PREFIX = "HQUEUE_"
_NOT_SETTINGS = {
    "HQUEUE_CONFIG", "HQUEUE_LOCAL_HOME", "HQUEUE_LOCAL_HBASE", "HQUEUE_CACHE", "HQUEUE_HUBS"
}  # fmt: skip


_Item = TypeVar("_Item", Address, GatewayAddress, Credential, AclEntry)


def _listed(
    name: str, kind: type[_Item], parse: Callable[[str], _Item], value: object
) -> tuple[_Item, ...]:
    """The items of a setting that has several: a list, or one text with commas."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    if isinstance(value, kind):
        value = [value]
    if not isinstance(value, Iterable):
        raise SettingsError("this setting must be a list, or one string with commas", setting=name)
    return tuple(item if isinstance(item, kind) else parse(str(item)) for item in value)


def _chosen(name: str, known: Sequence[str], value: Any) -> Any:
    if value not in known:
        raise SettingsError(f"{name} must be {' or '.join(map(repr, known))}", **{name: value})
    return value


def _path(name: str, example: str, path: Any) -> Any:
    if not re.fullmatch(r"(/[^/\x00-\x1f]+)+", path) or {".", ".."} & set(path.split("/")):
        raise SettingsError(f"{name} must be a ZooKeeper path, such as {example}", **{name: path})
    return path


def _connection_string(value: str) -> str:
    try:
        zookeeper_servers(value)
    except InvalidInputError as exc:
        raise SettingsError(
            "zookeeper must be written as host:port,host:port, with or without a path at the end",
            zookeeper=value,
        ) from exc
    return value


def _table(value: str) -> str:
    try:
        return check_queue_name(value)
    except InvalidInputError as exc:
        raise SettingsError(
            "metadata_table must be a table's name, with the same characters as a queue's",
            metadata_table=value,
        ) from exc


NATIVE = "native"
GATEWAYS = "gateways"

HTTP = "http"

_CHOICES = {
    "hbase": (NATIVE, GATEWAYS),
    "hbase_authentication": (SIMPLE, KERBEROS, TOKEN),
    "transport": ("buffered", "framed", HTTP),
    "zookeeper_authentication": (NONE, KERBEROS, DIGEST),
    "protocol": ("binary", "compact"),
    "compression_type": ("zstd", "none"),
    "metadata_store": ("zookeeper", "hbase", "memory"),
}

_PATHS = {"zookeeper_root": "/hqueue", "hbase_znode_parent": "/hbase"}

_BOUNDS = {"broker_id": (0, None)}
"""Of whole numbers; 1 and no greatest where there are none."""

_LISTED: Mapping[str, tuple[type[Any], Callable[[str], Any]]] = {
    "hbase_masters": (Address, master_address),
    "gateways": (GatewayAddress, GatewayAddress.parse),
    "zookeeper_auth": (Credential, Credential.parse),
    "zookeeper_acl": (AclEntry, AclEntry.parse),
}


@dataclasses.dataclass(frozen=True)
class Settings(PortSecuritySettings):
    """All settings of a connection. Frozen, and checked when made. Times are in milliseconds."""

    hbase: str = ""
    """How clients reach HBase: ``native`` (directly) or ``gateways`` (through Thrift gateways). By
    default native if ``hbase_masters`` are given, else gateways if ``gateways`` are given, else
    native.
    """

    hbase_masters: tuple[Address, ...] = ()
    """All HBase masters, as in HBase's ``hbase.masters``: ``host:port`` with commas between; the
    port is 16000 by default. They know HBase's other servers. Left out, ZooKeeper is asked for the
    servers. Only for ``native``.
    """

    hbase_znode_parent: str = "/hbase"
    """The ZooKeeper node below which HBase registers its servers, its own
    ``zookeeper.znode.parent``. Only for ``native`` without ``hbase_masters``.
    """

    hbase_authentication: str = SIMPLE
    """How clients and HBase prove who they are, as HBase's ``hbase.security.authentication``:
    ``simple``, not at all; ``kerberos``; or ``token``, by a delegation token from
    ``hbase_token_file`` or `Client.use_token`. Only for ``native``.
    """

    hbase_token_file: str | None = None
    """A file with a delegation token for HBase, in Hadoop's format; by default the one that the
    variable ``HADOOP_TOKEN_FILE_LOCATION`` names. The client reads it for each connection. With
    ``kerberos`` the client uses the token if it has neither a keytab nor a ticket.
    """

    hbase_principal: str = "hbase/_HOST"
    """The Kerberos principal of HBase's region servers. ``_HOST`` stands for the host in a server's
    address; a name without a realm belongs to the default realm.
    """

    hbase_master_principal: str | None = None
    """The Kerberos principal of HBase's masters, if it differs from that of region servers."""

    hbase_protection: tuple[str, ...] = PROTECTIONS
    """How Kerberos protects requests and answers: ``authentication``, not at all; ``integrity``,
    against changes; ``privacy``, against readers, too. The client uses the first one in the list
    that the server offers, by default the cheapest.
    """

    hbase_fallback_to_simple: bool = False
    """Whether a client with Kerberos accepts a server that asks for no proof of identity."""

    hbase_tls: bool = False
    """Whether clients reach HBase by TLS. Only for ``native``."""

    kerberos_principal: str | None = None
    """The client's own principal; by default that of its keytab or its tickets."""

    kerberos_keytab: str | None = None
    """The file with the client's keys, with which it gets and renews its tickets. Without it the
    client uses the tickets of ``kinit``.
    """

    kerberos_config: str | None = None
    """The configuration file of Kerberos, by default the system's ``/etc/krb5.conf``. A process has
    one: the client sets ``KRB5_CONFIG`` to it, which must not name another file.
    """

    kerberos_ticket_cache: str | None = None
    """Where the tickets of ``kinit`` are, like ``FILE:/tmp/tickets``; by default where
    ``KRB5CCNAME`` or the system's configuration says.
    """

    gateways: tuple[GatewayAddress, ...] = ()
    """The Thrift gateways: ``host:thrift1_port/thrift2_port`` with commas between. The gateway on a
    partition's region host is preferred. Left out, the gateway of this machine is used. Only for
    ``gateways``.
    """

    zookeeper: str = "127.0.0.1:2181"
    """ZooKeeper's connection string."""

    zookeeper_root: str = "/hqueue"
    """The ZooKeeper node below which hqueue keeps everything."""

    metadata_table: str = "hqueue_metadata"
    """The HBase table for topics' metadata, if ``metadata_store`` is ``hbase``. It is created at
    its first use, and is not a queue.
    """

    broker_id: int = 0
    """The logical ID of this HQueue cluster for consumer groups, 0 or above. Two clusters below one
    ``zookeeper_root`` need different IDs.
    """

    zookeeper_session_timeout_ms: int = 10_000
    """How long ZooKeeper keeps a session, and what it has registered, without a sign of life."""

    zookeeper_authentication: str = NONE
    """How clients and ZooKeeper prove who they are, by SASL: ``none``, not at all; ``kerberos``; or
    ``digest``, by the user and the password of ``sasl:user:password`` in ``zookeeper_auth`` or
    ``zookeeper_auth_file``.
    """

    zookeeper_principal: str = "zookeeper/_HOST"
    """The Kerberos principal of ZooKeeper's servers. ``_HOST`` stands for the host in
    ``zookeeper``; a name without a realm belongs to the default realm.
    """

    zookeeper_tls: bool = False
    """Whether sessions reach ZooKeeper by TLS: ``zookeeper`` then names its secure ports."""

    zookeeper_auth: tuple[Credential, ...] = dataclasses.field(default=(), repr=False)
    """The credentials for ZooKeeper: ``scheme:credential``, for example
    ``digest:user:password``.
    """

    zookeeper_auth_file: str | None = None
    """A file with the credentials for ZooKeeper, one per line, instead of ``zookeeper_auth``. It is
    read for each connection.
    """

    zookeeper_acl: tuple[AclEntry, ...] = ()
    """The ACL of new nodes: ``scheme:id:permissions``, as ZooKeeper's own command line
    writes it. By default ``auth::cdrwa``, which allows only the creator's principal, if the session
    proves who it is by ``zookeeper_authentication`` or by credentials; else ``world:anyone:cdrwa``.
    """

    metadata_store: str = "zookeeper"
    """Where hubs keep topics' metadata: ``zookeeper``; ``hbase``, for millions of topics and
    subscriptions; or ``memory``, for tests within one process. All hubs of a root need the same.
    The metadata of a queue that was moved stays in the store that it was moved to. Hubs are
    registered in ZooKeeper in any case.
    """

    notify_workers: bool = True
    """Whether to notify workers of appends. A process that appends then opens a session with
    ZooKeeper, if it can reach it. Without notifications, workers find messages up to a second
    later.
    """

    gateways_tls: bool = False
    """Whether clients reach gateways by TLS. HBase's own gateways speak TLS only with the transport
    ``http``. Only for ``gateways``.
    """

    transport: str = "buffered"
    """The gateways' Thrift transport: ``buffered``, ``framed`` or ``http``."""

    protocol: str = "binary"
    """The gateways' Thrift protocol: ``binary`` or ``compact``."""

    connect_timeout_ms: int = 3_000
    """The time limit for opening one connection to a gateway or server."""

    request_timeout_ms: int = 15_000
    """The time limit for one request to a gateway or server. A later answer counts as none."""

    operation_timeout_ms: int = 60_000
    """The time limit for a whole put or read with all its retries. A fault that may pass raises no
    error earlier, and no call waits longer.
    """

    gateway_retry_ms: int = 2_000
    """How long to avoid a gateway that failed for the first time. Each further failure doubles the
    time, up to 30 s.
    """

    connections_max: int = 32
    """How many connections to keep or use for each port of each gateway."""

    connection_idle_ms: int = 60_000
    """A connection that was idle for longer is closed instead of used, since gateways drop idle
    connections.
    """

    compression_type: str = "zstd"
    """The compression of appended batches, used where it makes them smaller: ``zstd`` or ``none``.
    Readers need no setting.
    """

    clock_skew_ms_max: int = 5_000
    """How far this machine's clock may differ from a region server's before appends are refused."""

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise fault

    def _faults(self) -> Iterator[HQueueError]:
        """Read each field, and yield an error for each one that is wrong, which has its default
        then; and for each way in which the others don't fit together.
        """
        wrong: set[str] = set()
        for name, reading in self._readings():
            for fault in reading:
                wrong.add(name or str(fault.facts.get("setting")))
                yield fault
        for fault in self._misfits():
            # What was wrong by itself may have been meant to fit.
            named = {*re.findall(r"\w+", fault.text), *fault.facts, fault.facts.get("setting")}
            if wrong.isdisjoint(named):
                yield fault

    def _readings(self) -> Iterator[tuple[str, Iterator[HQueueError]]]:
        """Name fields, and read them; no name stands for that in an error's fact ``setting``."""
        for name, (kind, parse) in _LISTED.items():
            yield name, read_field(self, name, partial(_listed, name, kind, parse))
        yield "hbase_protection", read_field(self, "hbase_protection", read_protections)
        self._choose_hbase()
        yield "", field_faults(self, _BOUNDS, empty_texts=False)
        for name, known in _CHOICES.items():
            yield name, read_field(self, name, partial(_chosen, name, known))
        for name, example in _PATHS.items():
            yield name, read_field(self, name, partial(_path, name, example))
        yield "zookeeper", read_field(self, "zookeeper", _connection_string)
        yield "metadata_table", read_field(self, "metadata_table", _table)

    def _misfits(self) -> Iterator[HQueueError]:
        yield from port_security_faults(self)
        yield from security_faults(self, is_native=self.hbase == NATIVE)
        yield from zookeeper_security_faults(self)

    def _choose_hbase(self) -> None:
        """What stands for what was left out of the ways to HBase."""
        if self.hbase == "":
            through = self.gateways and not self.hbase_masters
            object.__setattr__(self, "hbase", GATEWAYS if through else NATIVE)
        if self.hbase == GATEWAYS and not self.gateways:
            object.__setattr__(self, "gateways", (GatewayAddress("127.0.0.1"),))

    @classmethod
    def load(
        cls, arguments: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
    ) -> Settings:
        """Gather the settings from all sources.

        Args:
            arguments: settings by name; a value of None counts as not given.
            environ: the environment; the process's own if None.

        Raises:
            SettingsError: a setting is unknown (the closest known one is named) or has a wrong
                value, or a settings file can't be read.
        """
        environ = os.environ if environ is None else check_mapping(environ, "environ")
        for name in environ:
            check_kind(name, str, "environ")
        if arguments is not None:
            check_mapping(arguments, "arguments")
        settings: Settings = _find(environ).make(arguments)
        return settings


def settings_faults(arguments: Mapping[str, object]) -> list[HQueueError]:
    """Return the error of each wrong setting; `Settings.load` raises only the first.

    Raises:
        SettingsError: a settings file can't be read.
    """
    return _find(os.environ).faults(arguments)


def setting_source(name: str) -> str:
    """The source of a setting that is not given as an argument, as a text for people: a variable, a
    file and line, or the default.
    """
    return _find(os.environ).source_of(name)


def found_settings(names: Iterable[str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of these settings that are given: as an argument, in the environment, in a file. What
    has a default of its own for them takes them from here.

    Raises:
        SettingsError: as `Settings.load`.
    """
    found = _find(os.environ)
    settings = found.make(arguments)
    return {
        name: getattr(settings, name)
        for name in names
        if arguments.get(name) is not None or found.has(name)
    }


def _find(environ: Mapping[str, str]) -> FoundSettings:
    """What the files and the environment have."""
    found = FoundSettings(Settings)
    # A worker's and a hub's settings stand in the same places, and do not belong to a connection.
    found.add_file(local_connection_file(environ), without=ROLES)
    found.add_file(user_file(environ), without=ROLES)
    found.add_environment(
        environ, ENVIRONMENT_PREFIX, without=(*map(prefix_of, ROLES), *_NOT_SETTINGS)
    )
    return found
