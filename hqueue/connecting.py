"""The way in: the settings choose what stands behind the ports."""

from __future__ import annotations

from hqueue.client import Client
from hqueue.errors import InvalidInputError
from hqueue.hbase import GatewayStore, NativeStore
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.settings.connection import NATIVE, Settings
from hqueue.settings.options import ConnectOptions, Unpack
from hqueue.store import StorePort
from hqueue.zookeeper import ZooKeeperCoordination, ZooKeeperNodes

__all__ = ["connect", "open_client", "open_store"]


def connect(settings: Settings | None = None, **given: Unpack[ConnectOptions]) -> Client:
    """Connect to the HBase that the settings name; without any, to the running local server.

    Nothing is sent before the first operation.

    Args:
        settings: all settings at once; or
        given: single ones by their names in `Settings`, as ``gateways="host:9090/9091"``. The
            others come from the environment, the settings file and the defaults.

    Raises:
        SettingsError: a setting is unknown or has a wrong value.
    """
    if settings is not None and given:
        raise InvalidInputError("give Settings or single settings, not both")
    return open_client(settings or Settings.load(given))


def open_client(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> Client:
    """A client of what these settings name: HBase, or its gateways, and ZooKeeper."""
    store = open_store(settings, clock)
    return Client(settings, store, lambda: ZooKeeperCoordination(settings), clock)


def open_store(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> StorePort:
    """HBase as the settings say that it is spoken to."""
    if settings.hbase == NATIVE:
        return NativeStore(settings, ZooKeeperNodes(settings).read, clock)
    return GatewayStore(settings, clock)
