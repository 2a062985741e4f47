"""The profile ``standalone``: one HBase process with everything in it, and gateways if wanted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hqueue.local.configuration import FULL_COMPILER, LARGE_HEAP, Launcher, Xml
from hqueue.local.layout import MEMSTORE_SETTINGS, Layout, Profile, gateway_plan, master_plan
from hqueue.settings.addresses import GatewayAddress

__all__ = ["HOST", "PORTS", "STANDALONE", "server_settings"]

HOST = "127.0.0.1"
PORTS = ("zookeeper", "master", "regionserver")
GATEWAY_PORTS = ("thrift1", "thrift2")


def _layout(launcher: Launcher, ports: Mapping[str, int], gateways: bool) -> Layout:
    """ZooKeeper, master and region server in one JVM, with the data in plain files."""
    data = launcher.home.data("standalone")
    client = client_settings(ports)
    master = master_plan(
        launcher,
        ports={name: ports[name] for name in PORTS},
        heap_mb=2_048,
        options=FULL_COMPILER,
        collector=LARGE_HEAP,
        hbase=server_settings(data, ports),
    )
    zookeeper = f"{HOST}:{ports['zookeeper']}"
    if not gateways:
        return Layout((master,), (), zookeeper)
    beside = [
        gateway_plan(
            launcher, name, host=HOST, port=ports[name], hbase=client, heap_mb=512, stage=0
        )
        for name in GATEWAY_PORTS
    ]
    address = GatewayAddress(HOST, ports["thrift1"], ports["thrift2"])
    return Layout((master, *beside), (address,), zookeeper)


def client_settings(ports: Mapping[str, int]) -> Xml:
    """What clients of the one process need to find it."""
    return {
        "hbase.zookeeper.quorum": HOST,
        "hbase.zookeeper.property.clientPort": ports["zookeeper"],
        "zookeeper.session.timeout": 20_000,
    }


def server_settings(data: Path, ports: Mapping[str, int]) -> Xml:
    """The settings of the one process, which keeps its data in a folder."""
    data.mkdir(parents=True, exist_ok=True)
    return {
        **client_settings(ports),
        "hbase.cluster.distributed": False,
        # One process alone takes this instead of `zookeeper.session.timeout`, by default 10 s. It
        # ends itself when its session ends: also if the machine gave it no processor for so long.
        "zookeeper.session.timeout.localHBaseCluster": 60_000,
        "hbase.rootdir": f"file://{data}/hbase",
        "hbase.tmp.dir": f"{data}/tmp",
        "hbase.zookeeper.property.dataDir": f"{data}/zookeeper",
        "hbase.zookeeper.property.tickTime": 1_000,
        "hbase.zookeeper.property.minSessionTimeout": 2_000,
        "hbase.zookeeper.property.maxSessionTimeout": 60_000,
        "hbase.zookeeper.property.maxClientCnxns": 1_000,
        "hbase.master.hostname": HOST,
        "hbase.master.ipc.address": HOST,
        "hbase.master.port": ports["master"],
        "hbase.master.info.port": -1,
        "hbase.regionserver.hostname": HOST,
        "hbase.regionserver.ipc.address": HOST,
        "hbase.regionserver.port": ports["regionserver"],
        "hbase.regionserver.info.port": -1,
        # How long the region server waits before it asks the master again whether it may begin.
        # But for each report to the master it writes all requests under way out as text: at
        # 500 ms that was a sixth of what the server did under batches of megabytes.
        "hbase.regionserver.msginterval": 1_500,
        # A log is ended after half of that. On plain files that would be 32 MB: with batches of
        # megabytes three logs a second, and each new one reads all of Hadoop's settings again,
        # a twentieth of what the server did. Together they may have a gigabyte, as by default.
        "hbase.regionserver.hlog.blocksize": 256 * 1024 * 1024,
        "hbase.regionserver.maxlogs": 8,
        "hbase.master.wait.on.regionservers.maxtostart": 1,
        "hbase.master.wait.on.regionservers.timeout": 500,
        "hbase.master.wait.on.regionservers.interval": 100,
        "hbase.client.pause": 50,
        # By default they may fill 0.8 of the heap. Batches of megabytes need more room than
        # that leaves: the process ended for want of memory after some gigabytes of puts.
        "hbase.regionserver.global.memstore.size": 0.3,
        "hfile.block.cache.size": 0.25,
        **MEMSTORE_SETTINGS,
    }


STANDALONE = Profile("standalone", PORTS, GATEWAY_PORTS, False, _layout)
