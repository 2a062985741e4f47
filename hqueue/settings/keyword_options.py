"""Options that are given by keyword: their names and types, and the error for one that isn't there.

What each stands for if it is left out is said where it is used; a test holds the two together.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypedDict

from hqueue.errors import InvalidInputError
from hqueue.settings.addresses import Address, GatewayAddress
from hqueue.settings.names import with_closest
from hqueue.settings.port_security import PortSecurityOptions
from hqueue.settings.zookeeper_security import AclEntry, Credential

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack

__all__ = ["AlterableAttributes", "ConnectOptions", "QueueAttributes", "Unpack", "check_options"]


class ConnectOptions(PortSecurityOptions, total=False):
    """Settings of a connection, by their names in `Settings`, which describes each.

    Give a list as a sequence, or as a text with commas. None counts as not given.
    """

    hbase: str | None
    hbase_masters: str | Address | Sequence[str | Address] | None
    hbase_znode_parent: str | None
    hbase_authentication: str | None
    hbase_token_file: str | None
    hbase_principal: str | None
    hbase_master_principal: str | None
    hbase_protection: str | Sequence[str] | None
    hbase_fallback_to_simple: bool | None
    hbase_tls: bool | None
    kerberos_principal: str | None
    kerberos_keytab: str | None
    kerberos_config: str | None
    kerberos_ticket_cache: str | None
    gateways: str | GatewayAddress | Sequence[str | GatewayAddress] | None
    zookeeper: str | None
    zookeeper_root: str | None
    metadata_table: str | None
    broker_id: int | None
    zookeeper_session_timeout_ms: int | None
    zookeeper_authentication: str | None
    zookeeper_principal: str | None
    zookeeper_tls: bool | None
    zookeeper_auth: str | Credential | Sequence[str | Credential] | None
    zookeeper_auth_file: str | None
    zookeeper_acl: str | AclEntry | Sequence[str | AclEntry] | None
    metadata_store: str | None
    notify_workers: bool | None
    gateways_tls: bool | None
    transport: str | None
    protocol: str | None
    connect_timeout_ms: int | None
    request_timeout_ms: int | None
    operation_timeout_ms: int | None
    gateway_retry_ms: int | None
    connections_max: int | None
    connection_idle_ms: int | None
    compression_type: str | None
    clock_skew_ms_max: int | None


class AlterableAttributes(TypedDict, total=False):
    """Attributes of a queue that can be changed later. Attributes that are not given have HBase's
    defaults.
    """

    memstore_flush_bytes: int
    """How many bytes a region holds in memory before it writes a file."""

    major_compaction_ms: int
    """The time between major compactions of a region; 0 for none."""

    compaction_files_min: int
    """How many files begin a compaction."""

    compaction_files_max: int
    """How many files one compaction takes at most."""

    compression: str
    """HBase's compression of the files: NONE, GZ, SNAPPY, LZ4, ZSTD, LZO or BZIP2."""

    blocking_store_files: int
    """How many files make a region block writers."""

    durability: str
    """When a put is durable: SYNC_WAL, HBase's default, when each server of the write-ahead log's
    storage has it in memory; FSYNC_WAL, when it is on their disks. If all these servers lose power
    at once, SYNC_WAL loses the messages of up to the last half minute, and FSYNC_WAL none. Choose
    FSYNC_WAL if they share a source of power, and no acknowledged message may be lost.
    """


class QueueAttributes(AlterableAttributes, total=False):
    """Attributes of a queue to create. Attributes that are not given have HBase's defaults."""

    partitions_per_region: int
    """How many partitions share a region. Fixed when the queue is created."""


def check_options(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Check that all options are known.

    Raises:
        InvalidInputError: an option is unknown. The error names the owner, and a similar known
            option if there is one.
    """
    known = sorted(known)
    for name in given:
        if name not in known:
            unknown = InvalidInputError(f"{owner} has no such option", option=name)
            raise with_closest(unknown, name, known)
