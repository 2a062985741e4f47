"""The kinds of faults of servers, of their network, clocks, disks and files, and of the table."""

from __future__ import annotations

from .fault import GATEWAYS, Fault

__all__ = ["SERVER_KINDS"]

SERVER_KINDS = (
    Fault("kill-regionserver", "kill -9 a region server; restart it later", (4, 8)),
    Fault("kill-meta", "kill -9 the region server that holds `hbase:meta`", (4, 8)),
    Fault("kill-gateway", "kill -9 both gateways of a host", (2, 6), over=(GATEWAYS,)),
    Fault("kill-datanode", "kill -9 a DataNode", (3, 6)),
    Fault(
        "pause-regionserver",
        "SIGSTOP a region server for longer than every time-out, then resume it",
        (21, 24),
    ),
    Fault(
        "pause-gateway",
        "SIGSTOP both gateways of a host for longer than every time-out, then resume them",
        (21, 24),
        over=(GATEWAYS,),
    ),
    Fault("restart-master", "kill -9 the master, and restart it", (1, 3)),
    Fault(
        "slow-datanode",
        "let a DataNode stand still (SIGSTOP) nine tenths of the time, a second at a time, as "
        "one whose disk is slow",
        (8, 16),
    ),
    Fault(
        "slow-disk",
        "let the disk of a DataNode take only 2 to 16 writes a second; the queues have "
        "`durability` `FSYNC_WAL`",
        (8, 16),
        power=True,
        slow=True,
    ),
    Fault(
        "slow-zookeeper-disks",
        "as slow-disk, but of all of ZooKeeper's servers: two fast ones would make a quorum",
        (8, 16),
        power=True,
        slow=True,
    ),
    Fault(
        "fill-datanode",
        "fill the disk of a DataNode, but for what it reserves, and flush all regions; when there "
        "is room again, restart it",
        (8, 14),
        power=True,
    ),
    Fault("fill-datanodes", "as fill-datanode, but of all DataNodes", (8, 14), power=True),
    Fault(
        "fill-namenode",
        "fill the disk of the name node, and flush all regions; when there is room again, restart "
        "it",
        (8, 14),
        power=True,
    ),
    Fault("fill-zookeeper", "fill the disk of one of ZooKeeper's servers", (8, 14), power=True),
    Fault("fill-zookeepers", "fill the disks of all of ZooKeeper's servers", (8, 14), power=True),
    Fault(
        "rot-blocks",
        "flip bits of a running DataNode's blocks and cut others off, and kill -9 a region "
        "server, whose log must be read then",
        (4, 8),
    ),
    Fault("rot-checksums", "as rot-blocks, but of the files of the checksums", (4, 8)),
    Fault(
        "rot-stopped-datanode",
        "flip bits of a DataNode's files of both kinds, and cut others off, while it is down",
        (3, 6),
    ),
    Fault(
        "rot-zookeeper",
        "flip bits of the logs and snapshots of one of ZooKeeper's three servers, and cut "
        "others off, while it is down; if it does not serve with them, it begins without",
        (3, 6),
    ),
    Fault(
        "set-regionserver-clock",
        "set a region server's clock up to 5 minutes ahead or back",
        (8, 14),
        clocks=True,
    ),
    Fault(
        "set-server-clock",
        "set the clock of the master or of ZooKeeper's leader up to 5 minutes ahead or back",
        (8, 14),
        clocks=True,
    ),
    Fault(
        "jump-server-clock",
        "let the clock of one of these jump ahead and back, again and again",
        (8, 14),
        clocks=True,
    ),
    Fault("kill-namenode", "kill -9 the name node", (2, 6)),
    Fault(
        "kill-all",
        "kill -9 all servers at once, and start them in any order",
        (0, 1),
    ),
    Fault("restart-zookeeper", "kill -9 all of ZooKeeper, and restart it", (0, 1)),
    Fault("kill-zookeeper", "kill -9 one of ZooKeeper's three servers", (4, 8)),
    Fault("kill-zookeeper-leader", "kill -9 the leader of ZooKeeper's three servers", (4, 8)),
    Fault(
        "lose-zookeeper-quorum",
        "kill -9 two of ZooKeeper's three servers for longer than all sessions last",
        (8, 14),
    ),
    Fault(
        "move-regions",
        "move all regions of a region server to the others, and back",
        (0, 1),
    ),
    Fault(
        "cut-connections",
        "cut the connection of some requests before they arrive, of others before their "
        "answer, "
        "and never answer others; delay some conditional puts by seconds",
        (5, 8),
    ),
    Fault("delay-connections", "delay every request by up to 300 ms", (4, 7)),
    Fault("disable-queue", "disable the queue, and enable it", (1, 3)),
    Fault(
        "compact",
        "fill a partition with megabytes until its memory is flushed twice, and compact its "
        "files into one (a major compaction)",
        (0, 1),
    ),
    Fault(
        "cut-off-regionserver",
        "cut a region server from all other hosts for longer than every time-out",
        (22, 28),
        apart=True,
    ),
    Fault(
        "cut-off-datanode",
        "cut a DataNode from all other hosts for longer than every time-out",
        (22, 28),
        apart=True,
    ),
    Fault(
        "cut-off-zookeeper",
        "cut ZooKeeper from all other hosts until all sessions are over",
        (7, 12),
        apart=True,
    ),
    Fault(
        "cut-off-zookeeper-leader",
        "cut the leader of ZooKeeper's three servers from all other hosts",
        (7, 12),
        apart=True,
    ),
    Fault(
        "cut-clients-from-leader",
        "cut clients from the leader of ZooKeeper's three servers alone",
        (7, 12),
        apart=True,
    ),
    Fault(
        "cut-off-master",
        "cut the master from all other hosts for longer than its session lasts",
        (7, 12),
        apart=True,
    ),
    Fault(
        "cut-from-zookeeper",
        "cut a region server from ZooKeeper alone for longer than its session lasts",
        (22, 28),
        apart=True,
    ),
    Fault(
        "cut-from-master",
        "cut a region server from the master alone",
        (10, 20),
        apart=True,
    ),
    Fault(
        "cut-from-namenode",
        "cut a region server from the name node alone for longer than every time-out",
        (22, 28),
        apart=True,
    ),
    Fault(
        "cut-from-clients",
        "cut a region server from clients alone for longer than every time-out",
        (22, 28),
        apart=True,
    ),
    Fault(
        "cut-clients-from-zookeeper",
        "cut clients from ZooKeeper alone for longer than their sessions last",
        (7, 12),
        apart=True,
    ),
    Fault(
        "cut-one-way",
        "drop all that one host sends to another, in one direction",
        (22, 28),
        apart=True,
    ),
    Fault(
        "halve-network",
        "cut the servers into halves that don't see each other; clients see all",
        (7, 25),
        apart=True,
    ),
    Fault(
        "bridge-network",
        "as halve-network, but one server sees both halves",
        (7, 25),
        apart=True,
    ),
    Fault(
        "flap-regionserver",
        "cut a region server from all other hosts for moments, again and again",
        (8, 20),
        apart=True,
    ),
    Fault(
        "unplug-datanode",
        "cut the power of a DataNode: what it did not sync is gone",
        (3, 6),
        power=True,
    ),
    Fault(
        "unplug-host",
        "cut the power of a region server and of the DataNode beside it",
        (4, 8),
        power=True,
    ),
    Fault(
        "unplug-all",
        "cut the power of all servers at once, and start them in a random order; the queues "
        "have `durability` `FSYNC_WAL`",
        (0, 3),
        power=True,
    ),
    Fault(
        "two-at-once",
        "two of the faults of servers at once, drawn by the seed, on different servers",
        (0, 0),
        often=6,
    ),
    Fault(
        "three-at-once",
        "three of them at once",
        (0, 0),
        often=3,
    ),
)
