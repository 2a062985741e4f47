"""The profile ``cluster``: HDFS, ZooKeeper and HBase on three hosts of this machine, or on hosts
that are apart.

ZooKeeper, a name node, three data nodes, a master, and on each of 127.0.0.1, 127.0.0.2 and
127.0.0.3 a region server: nine JVMs, and six more where both gateways are wanted on each host, all
bounded in memory. Every write is in the memory of three data nodes before it is acknowledged; while
some are away, and for up to a minute longer, of those that are there. A killed region server's
partitions are back on another one within 30 s. ZooKeeper may be an ensemble of several servers.
"""

from __future__ import annotations

import dataclasses
import functools
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from hqueue.errors import LocalServerError
from hqueue.local.configuration import FULL_COMPILER, QUICK_COMPILER, Launcher, Xml
from hqueue.local.ensemble import (
    SESSION_TIMEOUT_MS,
    zookeeper_names,
    zookeeper_plans,
    zookeeper_port_names,
)
from hqueue.local.layout import MEMSTORE_SETTINGS, Layout, Profile, gateway_plan, master_plan
from hqueue.local.process import ProcessPlan
from hqueue.settings.addresses import GatewayAddress

__all__ = ["CLUSTER", "RESERVED_BYTES", "ClusterHosts", "cluster_on", "host_names", "loopback"]

NUMBERS = (1, 2, 3)
FORMAT_TIMEOUT_S = 60.0

RESERVED_BYTES = 256 * 1024 * 1024
"""What data nodes leave free on their disks for other programs, and for blocks under way."""

STORAGE, SERVERS, GATEWAYS = range(3)

_HDFS: Xml = {
    "dfs.replication": 3,
    "dfs.permissions.enabled": False,
    "dfs.namenode.safemode.extension": 0,
    "dfs.namenode.safemode.min.datanodes": 2,
    "dfs.namenode.fs-limits.min-block-size": 0,
    # A pipeline that lost a data node goes on with the others: there is no fourth to take.
    "dfs.client.block.write.replace-datanode-on-failure.enable": False,
    "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
    # Data nodes that are silent are avoided after 6 s and given up after 20 s.
    "dfs.heartbeat.interval": 1,
    "dfs.namenode.heartbeat.recheck-interval": 5_000,
    "dfs.namenode.stale.datanode.interval": 6_000,
    "dfs.namenode.avoid.read.stale.datanode": True,
    "dfs.namenode.avoid.write.stale.datanode": True,
    # With less room a data node takes no new block: HDFS may lose the last bytes, up to 511, of a
    # block whose writing met a disk that was full.
    "dfs.datanode.du.reserved": RESERVED_BYTES,
    # Files that HBase has flushed must be on the disks before it drops their log.
    "dfs.datanode.synconclose": True,
    # An address need not have a name.
    "dfs.namenode.datanode.registration.ip-hostname-check": False,
    "dfs.client.socket-timeout": 5_000,
    "dfs.datanode.socket.write.timeout": 10_000,
    "ipc.client.connect.timeout": 2_000,
    "ipc.client.connect.max.retries": 3,
    "ipc.client.connect.max.retries.on.timeouts": 3,
}

_RECOVERY: Xml = {
    # A dead region server's log file is taken over: look often whether that is done.
    "hbase.lease.recovery.first.pause": 500,
    "hbase.lease.recovery.pause": 500,
    "hbase.lease.recovery.dfs.timeout": 6_000,
    # A starting master waits for all region servers, but not for long when one is dead.
    "hbase.master.wait.on.regionservers.maxtostart": len(NUMBERS),
    "hbase.master.wait.on.regionservers.timeout": 4_500,
    "hbase.master.wait.on.regionservers.interval": 500,
    "hbase.client.pause": 50,
}


def host_names(zookeepers: int = 1) -> tuple[str, ...]:
    """The processes that have a host each, where hosts are apart. A host's two gateways, if there
    are any, run beside its region server.
    """
    return (
        *zookeeper_names(zookeepers),
        "namenode",
        "master",
        *(f"datanode-{n}" for n in NUMBERS),
        *(f"regionserver-{n}" for n in NUMBERS),
    )


@dataclasses.dataclass(frozen=True)
class ClusterHosts:
    """Where the processes of a cluster run.

    Args:
        addresses: each host's address, by its name, which is one of `host_names`.
        command: given a host's name, the beginning of a command line that runs there.
    """

    addresses: Mapping[str, str]
    command: Callable[[str], tuple[str, ...]] = lambda _: ()

    def placed(self, name: str, plan: ProcessPlan) -> ProcessPlan:
        """The plan of a process that runs on the host of this name."""
        return dataclasses.replace(plan, command=(*self.command(name), *plan.command))


def loopback(zookeepers: int = 1) -> ClusterHosts:
    """Hosts that are addresses of this machine's own."""
    return ClusterHosts(
        {
            name: f"127.0.0.{name[-1] if name.startswith('regionserver') else 1}"
            for name in host_names(zookeepers)
        }
    )


def _layout(
    launcher: Launcher,
    ports: Mapping[str, int],
    gateways: bool,
    *,
    hosts: ClusterHosts,
    zookeepers: int,
) -> Layout:
    """A real cluster in small."""
    at = hosts.addresses
    data = launcher.home.data("cluster")
    data.mkdir(parents=True, exist_ok=True)
    # The name node and the data nodes refuse to start without these, which no jar has.
    for page in ("hdfs", "datanode", "secondary"):
        (launcher.home.conf / "webapps" / page).mkdir(parents=True, exist_ok=True)
    file_system = f"hdfs://{at['namenode']}:{ports['namenode']}"
    hdfs: Xml = {"fs.defaultFS": file_system, **_HDFS}
    ensemble = ",".join(f"{at[name]}:{ports[name]}" for name in zookeeper_names(zookeepers))
    client: Xml = {
        "hbase.cluster.distributed": True,
        "hbase.zookeeper.quorum": ensemble,
        "zookeeper.session.timeout": SESSION_TIMEOUT_MS,
    }
    hbase: Xml = {
        **client,
        **_RECOVERY,
        **MEMSTORE_SETTINGS,
        "hbase.rootdir": f"{file_system}/hbase",
        "hbase.tmp.dir": f"{data}/tmp",
        # That of `hbase:meta`: each queue's table says by itself how durable a put is.
        "hbase.wal.hsync": True,
        # HBase begins a log's file on the data nodes that are there, also on a single one, and
        # keeps to them when others are back. HDFS replicates files that have ended.
        "hbase.regionserver.logroll.period": 60_000,
        "hbase.regionserver.msginterval": 500,
        "hbase.master.info.port": -1,
        "hbase.regionserver.info.port": -1,
    }
    plans = [
        *zookeeper_plans(launcher, ports, data, at=at, count=zookeepers, stage=STORAGE),
        _namenode(launcher, ports, data, hdfs, at["namenode"]),
        *(_datanode(launcher, ports, data, hdfs, at=at, name=f"datanode-{n}") for n in NUMBERS),
        master_plan(
            launcher,
            host=at["master"],
            ports={"master": ports["master"]},
            heap_mb=256,
            options=QUICK_COMPILER,
            hbase={
                **hbase,
                "hbase.master.hostname": at["master"],
                "hbase.master.ipc.address": at["master"],
                "hbase.master.port": ports["master"],
            },
            hdfs=hdfs,
            stage=SERVERS,
        ),
        *(
            _region_server(launcher, ports, hbase, hdfs, at=at, name=f"regionserver-{n}")
            for n in NUMBERS
        ),
    ]
    processes = [hosts.placed(plan.name, plan) for plan in plans]
    addresses = []
    for number in NUMBERS if gateways else ():
        beside = f"regionserver-{number}"
        names = (f"thrift1-{number}", f"thrift2-{number}")
        addresses.append(GatewayAddress(at[beside], *(ports[name] for name in names)))
        for name in names:
            plan = gateway_plan(
                launcher,
                name,
                host=at[beside],
                port=ports[name],
                hbase=client,
                heap_mb=384,
                stage=GATEWAYS,
            )
            processes.append(hosts.placed(beside, plan))
    namenode = next(plan for plan in processes if plan.name == "namenode")
    return Layout(
        tuple(processes),
        tuple(addresses),
        ensemble,
        prepare=lambda: _format_once(namenode, data / "formatted"),
    )


def _namenode(
    launcher: Launcher, ports: Mapping[str, int], data: Path, hdfs: Xml, host: str
) -> ProcessPlan:
    return launcher.plan(
        "namenode",
        "org.apache.hadoop.hdfs.server.namenode.NameNode",
        host=host,
        ports={"namenode": ports["namenode"]},
        heap_mb=160,
        options=QUICK_COMPILER,
        hdfs={
            **hdfs,
            "hadoop.tmp.dir": f"{data}/tmp",
            "dfs.namenode.name.dir": f"file://{data}/namenode",
            "dfs.namenode.http-address": f"{host}:0",
            "dfs.namenode.handler.count": 10,
        },
        stage=STORAGE,
    )


def _datanode(
    launcher: Launcher,
    ports: Mapping[str, int],
    data: Path,
    hdfs: Xml,
    *,
    at: Mapping[str, str],
    name: str,
) -> ProcessPlan:
    # The name node knows a data node by the address it calls from. On a host that has several
    # loopback addresses that is the first: so data nodes share it there.
    host = at[name]
    own = {n: ports[n] for n in (name, f"{name}-ipc")}
    return launcher.plan(
        name,
        "org.apache.hadoop.hdfs.server.datanode.DataNode",
        host=host,
        ports=own,
        heap_mb=192,
        options=FULL_COMPILER,
        hdfs={
            **hdfs,
            "hadoop.tmp.dir": f"{data}/tmp-{name}",
            "dfs.datanode.data.dir": f"file://{data}/{name}",
            "dfs.datanode.address": f"{host}:{own[name]}",
            "dfs.datanode.ipc.address": f"{host}:{own[f'{name}-ipc']}",
            "dfs.datanode.http.address": f"{host}:0",
            "dfs.datanode.hostname": host,
            "dfs.datanode.max.transfer.threads": 512,
            "dfs.datanode.handler.count": 4,
        },
        stage=STORAGE,
    )


def _region_server(
    launcher: Launcher,
    ports: Mapping[str, int],
    hbase: Xml,
    hdfs: Xml,
    *,
    at: Mapping[str, str],
    name: str,
) -> ProcessPlan:
    host = at[name]
    return launcher.plan(
        name,
        "org.apache.hadoop.hbase.regionserver.HRegionServer",
        "start",
        host=host,
        ports={name: ports[name]},
        heap_mb=576,
        options=(*FULL_COMPILER, "-XX:MaxDirectMemorySize=192m"),
        hbase={
            **hbase,
            "hbase.regionserver.hostname": host,
            "hbase.regionserver.ipc.address": host,
            "hbase.regionserver.port": ports[name],
        },
        hdfs=hdfs,
        stage=SERVERS,
    )


def _format_once(namenode: ProcessPlan, done_mark: Path) -> None:
    """Make the name node's empty file system, unless that was done (the mark is there)."""
    if done_mark.exists():
        return
    try:
        done = subprocess.run(
            [*namenode.command, "-format", "-nonInteractive", "-force"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=FORMAT_TIMEOUT_S,
            cwd=done_mark.parent,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise LocalServerError("formatting the name node's folder failed") from exc
    if done.returncode != 0:
        raise LocalServerError(
            "formatting the name node's folder failed; its last log lines follow",
            file=namenode.log,
            log=(done.stdout + done.stderr)[-4_000:],
        )
    done_mark.touch()


def cluster_on(hosts: ClusterHosts, zookeepers: int = 1) -> Profile:
    """The profile of a cluster on these hosts, with so many servers of ZooKeeper."""
    return Profile(
        "cluster",
        (
            *zookeeper_port_names(zookeepers),
            "namenode",
            *(f"datanode-{n}" for n in NUMBERS),
            *(f"datanode-{n}-ipc" for n in NUMBERS),
            "master",
            *(f"regionserver-{n}" for n in NUMBERS),
        ),
        (*(f"thrift1-{n}" for n in NUMBERS), *(f"thrift2-{n}" for n in NUMBERS)),
        False,
        functools.partial(_layout, hosts=hosts, zookeepers=zookeepers),
    )


CLUSTER = cluster_on(loopback())
