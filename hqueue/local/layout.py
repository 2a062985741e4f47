"""What a profile consists of, and the configuration of its gateways."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hqueue.local.configuration import (
    FULL_COMPILER,
    QUICK_COMPILER,
    SMALL_HEAP,
    Launcher,
    Xml,
)
from hqueue.local.home import Home
from hqueue.local.process import ProcessPlan
from hqueue.settings.addresses import GatewayAddress

__all__ = [
    "GATEWAY_SETTINGS",
    "MEMSTORE_SETTINGS",
    "Layout",
    "Profile",
    "gateway_plan",
    "is_gateway",
    "master_plan",
]

GATEWAY_SETTINGS: Xml = {
    # A client's bound on a request is 15 s: a gateway gives up before, so that none of its
    # threads is left behind with a request that nobody waits for.
    "hbase.client.operation.timeout": 12_000,
    "hbase.client.meta.operation.timeout": 12_000,
    "hbase.client.scanner.timeout.period": 12_000,
    "hbase.rpc.timeout": 5_000,
    "hbase.rpc.read.timeout": 5_000,
    "hbase.rpc.write.timeout": 5_000,
    "hbase.client.pause": 100,
    "hbase.client.retries.number": 20,
    "hbase.ipc.client.socket.timeout.connect": 2_000,
    "hbase.ipc.client.failed.servers.expiry": 500,
    # HBase's pool queues a connection once the least number of threads is busy, where it would
    # wait for another one to close. So the least is the most, and what is beyond is refused.
    "hbase.thrift.minWorkerThreads": 400,
    "hbase.thrift.maxWorkerThreads": 400,
    "hbase.thrift.maxQueuedRequests": 1,
    # Clients close idle connections after 60 s; the gateway must not be the first.
    "hbase.thrift.server.socket.read.timeout": 120_000,
    "hbase.thrift.connection.max-idletime": 600_000,
}


MEMSTORE_SETTINGS: Xml = {
    # Each region takes a piece for each of its two families when it is first written to, whatever
    # it holds. In pieces of 2 MB, as by default, 1,000 partitions take 4 GB: the process ended.
    # What is larger than an allocation is held beside the pieces.
    "hbase.hregion.memstore.mslab.chunksize": 128 * 1024,
    "hbase.hregion.memstore.mslab.max.allocation": 32 * 1024,
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """One way to run the server, with its ports."""

    processes: tuple[ProcessPlan, ...]
    gateways: tuple[GatewayAddress, ...]
    """None where it runs without them."""
    zookeeper: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What clients need besides, by the names of `hqueue.Settings`."""
    roles: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """What workers and hubs need besides, by their names and those of their settings."""
    prepare: Callable[[], None] = lambda: None
    """Called once before the processes are started."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """A kind of local server."""

    name: str
    port_names: tuple[str, ...]
    """The names of the ports that its processes listen on, without gateways."""
    gateway_port_names: tuple[str, ...]
    """The names of its gateways' ports."""
    is_secure: bool
    """Whether it has a KDC."""
    layout: Callable[[Launcher, Mapping[str, int], bool], Layout]
    """Writes the settings of all processes and says how to start them; given whether with gateways,
    which have ports then, too."""
    is_usable: Callable[[Home], bool] = lambda home: True
    """Whether what was written for the last start can still be used."""


def is_gateway(process: str) -> bool:
    """Whether a process of this name is one of the Thrift gateways."""
    return process.startswith(("thrift1", "thrift2"))


def gateway_plan(
    launcher: Launcher,
    name: str,
    *,
    host: str,
    port: int,
    hbase: Xml,
    heap_mb: int,
    stage: int,
    options: Iterable[str] = (),
    hdfs: Xml | None = None,
) -> ProcessPlan:
    """Plan a gateway: Thrift1 if the name begins with ``thrift1``, else Thrift2."""
    package = "thrift" if name.startswith("thrift1") else "thrift2"
    return launcher.of_gateways().plan(
        name,
        f"org.apache.hadoop.hbase.{package}.ThriftServer",
        *("start", "-threadpool", "-b", host, "-p", str(port), "--infoport", "-1"),
        host=host,
        ports={name: port},
        heap_mb=heap_mb,
        options=(*FULL_COMPILER, "-XX:MaxDirectMemorySize=96m", *options),
        hbase={**hbase, **GATEWAY_SETTINGS},
        hdfs=hdfs,
        stage=stage,
    )


def master_plan(
    launcher: Launcher,
    *,
    host: str = "127.0.0.1",
    ports: Mapping[str, int],
    heap_mb: int,
    options: Iterable[str],
    common_options: Iterable[str] = (),
    collector: Iterable[str] = SMALL_HEAP,
    hbase: Xml,
    hdfs: Xml | None = None,
    stage: int = 0,
) -> ProcessPlan:
    """Plan HBase's master, which ends together with all region servers, their data flushed.
    ``options`` are its JVM's, ``common_options`` also those of the command that ends it.
    """
    start, stop = (
        launcher.plan(
            name,
            "org.apache.hadoop.hbase.master.HMaster",
            *arguments,
            host=host,
            ports=ports,
            heap_mb=megabytes,
            options=(*compiler, *common_options),
            collector=heap,
            hbase=hbase,
            hdfs=hdfs,
            stage=stage,
        )
        for name, arguments, megabytes, compiler, heap in (
            ("master", ("start",), heap_mb, options, collector),
            ("stop", ("stop", "--shutDownCluster"), 96, QUICK_COMPILER, SMALL_HEAP),
        )
    )
    return dataclasses.replace(start, stop_command=stop.command)
