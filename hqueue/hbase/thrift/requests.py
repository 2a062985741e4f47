"""Requests about one table: to the gateway beside the row's region, as far as that is known."""

from __future__ import annotations

from typing import Any

from hqueue.errors import StoreUnavailableError
from hqueue.hbase.thrift.connection import Service
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.locations import Locations

__all__ = ["TableRequests"]


class TableRequests:
    """What asks the gateways about one table. Thread-safe."""

    def __init__(self, gateways: Gateways, table: str, locations: Locations) -> None:
        self._gateways = gateways
        self._table = table
        self._table_bytes = table.encode()
        self._locations = locations

    def _call(
        self,
        method: str,
        key: bytes,
        *arguments: Any,
        service: Service = Service.THRIFT2,
        bulk: bool = False,
    ) -> Any:
        try:
            return self._gateways.call(
                service,
                method,
                self._table,
                self._table_bytes,
                *arguments,
                host=self._locations.host_of(key),
                bulk=bulk,
            )
        except StoreUnavailableError:
            self._locations.doubt()
            raise
