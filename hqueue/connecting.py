"""Connecting: the settings choose the store and the coordination service."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hqueue.errors import InvalidInputError, SettingsError
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.logs import Log
from hqueue.settings.connection import NATIVE, Settings
from hqueue.settings.keyword_options import ConnectOptions, Unpack

if TYPE_CHECKING:
    from hqueue.client import Client
    from hqueue.hbase.native import NativeStore
    from hqueue.metadata.access_rules import Login
    from hqueue.settings.addresses import Address
    from hqueue.store import StorePort
    from hqueue.zookeeper import NodeAccess, ZooKeeperProbe

# What isn't chosen isn't imported: each way to HBase, and ZooKeeper, have libraries of their own,
# which take a third of a second each.
# ruff: noqa: PLC0415

logger = Log(__name__)

__all__ = [
    "connect", "first_servers", "open_client", "open_node_access", "open_store", "own_login",
    "probe_zookeeper",
]  # fmt: skip


def connect(settings: Settings | None = None, **given: Unpack[ConnectOptions]) -> Client:
    """Connect to the HBase that the settings name; without settings, to the running local server.
    Programs that can't reach HBase use `connect_hubs`.

    Nothing is sent before the first operation.

    Args:
        settings: all settings at once; or
        given: single settings by their names in `Settings`, for example
            ``gateways="host:9090/9091"``. The others come from the environment, the settings file
            and the defaults.

    Raises:
        SettingsError: a setting is unknown or has a wrong value.
    """
    if settings is not None and not isinstance(settings, Settings):
        raise SettingsError(
            "settings must be an hqueue.Settings: give single settings by name, such as "
            "zookeeper='host:2181'",
            settings=settings,
        )
    if "hubs" in given:
        raise SettingsError("connect() connects to HBase: call connect_hubs() to connect to hubs")
    if settings is not None and given:
        raise InvalidInputError("give Settings or single settings, not both")
    return open_client(settings or Settings.load(given))


def open_client(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> Client:
    """A client of what these settings name: HBase, or its gateways, and ZooKeeper."""
    from hqueue.client import Client
    from hqueue.zookeeper import ZooKeeperCoordination

    store = open_store(settings, clock)
    return Client(settings, store, lambda loop: ZooKeeperCoordination(settings, loop=loop), clock)


def open_store(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> StorePort:
    """The store on HBase, natively or over gateways, as the settings say."""
    if settings.hbase == NATIVE:
        return _native_store(settings, clock)
    from hqueue.hbase.thrift.gateway_store import GatewayStore

    return GatewayStore(settings, clock)


def open_node_access(settings: Settings) -> NodeAccess:
    """Who may change HQueue's nodes in ZooKeeper, by a session of its own."""
    from hqueue.zookeeper import NodeAccess

    return NodeAccess(settings)


def own_login(settings: Settings) -> Login | None:
    """Return who this process is, by its settings: its login at ZooKeeper; without one that of its
    certificate, or that at HBase. None if it proves nothing, or what names it can't be used.
    """
    from hqueue.zookeeper.own_login import own_login

    try:
        return own_login(settings)
    except OSError as exc:
        logger.warning("can't determine this process's principal: %s", exc)
        return None


def first_servers(settings: Settings) -> tuple[Address, Address]:
    """HBase's active master, and the region server that all others are found by. For native
    settings.

    Raises:
        StoreUnavailableError: nothing named them within the operation's bound.
        RequestRefusedError: ZooKeeper, or a master, does not let this client in.
    """
    with contextlib.closing(_native_store(settings, SYSTEM_CLOCK)) as store:
        return store.first_servers()


def probe_zookeeper(settings: Settings) -> ZooKeeperProbe:
    """Like `hqueue.zookeeper.probe`."""
    from hqueue.zookeeper import probe

    return probe(settings)


def _native_store(settings: Settings, clock: Clock) -> NativeStore:
    from hqueue.hbase.native import NativeStore
    from hqueue.zookeeper import ZooKeeperNodes

    return NativeStore(settings, ZooKeeperNodes(settings).read.asked, clock)
