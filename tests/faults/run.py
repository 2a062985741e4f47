"""One run: a cluster under load and faults, drained, read once more, and judged."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import hqueue
from hqueue import Queue, local
from hqueue.errors import CorruptLogError

from .checker import Violation, check
from .checkpoints import CheckpointWatch
from .clock_faults import ClockFaults
from .connection_faults import ConnectionFaults
from .delivery_checker import check_deliveries
from .disk_faults import DiskFaults
from .disks import Disk
from .ensemble_faults import EnsembleFaults
from .group_checker import check_group
from .history import History, Recorder, load, now_s
from .hosts import Hosts
from .load import await_load
from .nemesis import Event, Nemesis, insist
from .network_faults import NetworkFaults
from .parts import Part
from .power_faults import PowerFaults
from .process_faults import ProcessFaults
from .processes import Processes
from .producer_faults import ProducerFaults
from .reader import noted
from .rot_faults import RotFaults
from .schedule import NATIVE, schedule
from .server_clocks import ServerClocks
from .server_faults import ServerFaults
from .share_checker import check_shares
from .share_faults import ShareFaults, before_each
from .share_history import ShareHistory
from .share_log import read_shares
from .specification import DELIVERED, DRAINED, STOP, shares_queue, topics_queue
from .together_faults import TogetherFaults
from .topic_checker import check_topics
from .topic_faults import TopicFaults
from .topic_history import TopicHistory
from .topic_log import CursorWatch, read_topics
from .upgrade_checker import Switch, check_switches
from .upgrade_faults import UpgradeFaults
from .versions import Code
from .ways import ways_to

__all__ = ["Options", "Result", "Surroundings", "read_all", "run"]

FINAL = "final"
ENDINGS = {
    STOP: ["producer", "publisher", "supplier"],
    DRAINED: ["stranger", "reader", "consumer", "subscriber", "listener", "sharer"],
    DELIVERED: ["worker", "hub"],
}
"""Which mark ends which kinds of processes, in this order."""
ENDING_S = 300.0
STUCK_S = 30.0
"""The bound instead of that if a process is known not to work."""
READS_OF_ALL_MAX = 5
NOTED_MAX = 500
PARTITIONS = 6
TOPICS_PARTITIONS = 3
SHARES_PARTITIONS = 2
ATTRIBUTES = {
    "memstore_flush_bytes": 2 * 1024 * 1024,
    "compaction_files_min": 3,
    "compaction_files_max": 10,
    # Whatever compaction is asked for takes all files: Thrift can't ask for a major one.
    "major_compaction_ms": 1_000,
}
CLIENT_SETTINGS = {
    "operation_timeout_ms": 20_000,
    "request_timeout_ms": 5_000,
    "zookeeper_session_timeout_ms": 5_000,
}
"""A server's recovery may take longer than an operation: so all outcomes are met."""


@dataclasses.dataclass(frozen=True)
class Options:
    """The shape of a run.

    Args:
        seed: of the schedule of faults, and of what processes choose.
        duration_s: of the faults, or longer until each kind has come, unless it is a part; draining
            and checking come on top.
        faults: the kinds of faults.
        folder: for histories and report.
        hbase: how HBase is spoken to: natively, or over gateways.
        apart: whether each server has a host of its own, so that the network between can be cut.
        power: whether each server that stores anything has a disk of its own.
        part: which part of a long run it is, if it is one.
    """

    seed: int
    duration_s: float
    faults: Sequence[str]
    folder: Path
    hbase: str = NATIVE
    apart: bool = False
    power: bool = False
    part: Part | None = None

    @property
    def chosen_by(self) -> str:
        """What decides what processes choose: each part of a run has processes of its own."""
        return f"{self.seed}" if self.part is None else f"{self.seed} part {self.part.number}"


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """What the servers of a cluster have of their own, so that it can be harmed; None of what they
    share with this machine.
    """

    hosts: Hosts | None = None
    disks: Mapping[str, Disk] | None = None
    clocks: ServerClocks | None = None


@dataclasses.dataclass
class Result:
    """What came of it."""

    options: Options
    history: History
    topics: TopicHistory
    shares: ShareHistory
    events: list[Event]
    violations: list[Violation]
    failures: list[str]
    """Processes of the run that crashed or did not end: then it proves nothing."""
    began_s: float
    ended_s: float
    switches: Sequence[Switch] = ()


def run(
    options: Options,
    server: local.LocalServer,
    say: Callable[[str], None],
    around: Surroundings = Surroundings(),
    *,
    older: Code | None = None,
) -> Result:
    """Run it on a cluster, with these hosts, disks and clocks; processes begin with the older code
    if it is given. No process of its own is left when this returns or raises.
    """
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    name = f"faults-{options.seed}-{os.getpid()}"
    with (
        ways_to(server) as ways,
        before_each(server.settings().zookeeper) as before_zookeeper,
        hqueue.connect(server.settings()) as client,
    ):
        durable = {"ttl": "1d", "durability": durability(options.faults)}
        queue = client.create_queue(name, partitions=PARTITIONS, **durable, **ATTRIBUTES)
        client.create_queue(topics_queue(name), partitions=TOPICS_PARTITIONS, **durable)
        client.create_queue(shares_queue(name), partitions=SHARES_PARTITIONS, **durable)
        settings = ways.settings()
        processes = Processes(
            options.chosen_by,
            name,
            options.folder,
            {
                "gateways": ",".join(map(str, settings.gateways)),
                "zookeeper": settings.zookeeper,
                **CLIENT_SETTINGS,
            },
            own={
                "sharer": {"zookeeper": ",".join(f"127.0.0.1:{p.port}" for p in before_zookeeper)}
            },
            ways=ways.addresses,
            older=older,
        )
        upgrades = UpgradeFaults(processes, options.folder)
        servers = ServerFaults(server, client, name, fill=processes.fill, say=say)
        producers = ProducerFaults(processes, options.folder)
        network = NetworkFaults(around.hosts, servers) if around.hosts else None
        power = PowerFaults(around.disks, server, servers).kinds if around.disks else {}
        ensemble = EnsembleFaults(server, servers, network)
        clocks = ClockFaults(around.clocks, servers, ensemble).kinds if around.clocks else {}
        of_servers = {
            **servers.kinds,
            **ConnectionFaults(ways, servers, say).kinds,
            **(network.kinds if network else {}),
            **ensemble.kinds,
            **power,
            **clocks,
            **RotFaults(server, servers, ensemble, say).kinds,
            **DiskFaults(around.disks or {}, server, servers).kinds,
        }
        nemesis = Nemesis(
            {
                **of_servers,
                **TogetherFaults(of_servers, servers).kinds,
                **producers.kinds,
                **ProcessFaults(processes, options.folder).kinds,
                **TopicFaults(processes.hubs, topics_queue(name), client).kinds,
                **ShareFaults(before_zookeeper).kinds,
                **upgrades.kinds,
            },
            say,
        )
        upgrades.on_incompatible = nemesis.stop
        watch = CheckpointWatch(client, name, options.folder / "seen.checkpoints.jsonl")
        cursors = CursorWatch(client, topics_queue(name), options.folder / "seen.cursors.jsonl")
        began_s = now_s()
        try:
            with watch, cursors:
                processes.start_all()
                failures = [
                    f"{name} wrote nothing before the first fault"
                    for name in await_load(processes, options.folder)
                ]
                done = options.part.planned if options.part else {}
                tracks = schedule(options.seed, options.faults, done)
                nemesis.run(tracks, options.duration_s, all_kinds=options.part is None)
                say("draining")
                insist(lambda: servers.whole(lambda: client.enable_queue(name)), say)
                bound_s = STUCK_S if check_switches(upgrades.switches) else ENDING_S
                for mark, kinds in ENDINGS.items():
                    (options.folder / mark).touch()
                    for kind in kinds:
                        failures += processes.end(kind, bound_s)
            ended_s = now_s()
        finally:
            processes.kill()
        say("reading everything once more")
        history = insist(lambda: servers.whole(lambda: read_all(queue, options.folder)), say)
        history.deposed = servers.deposed
        topics = insist(lambda: read_topics(client, topics_queue(name), options.folder), say)
        shares = insist(lambda: read_shares(client, shares_queue(name), options.folder), say)
    say("checking")
    violations = [
        *check(history),
        *check_deliveries(history),
        *check_group(history),
        *check_topics(topics),
        *check_shares(shares),
        *check_switches(upgrades.switches),
    ]
    return Result(
        options,
        history,
        topics,
        shares,
        nemesis.events,
        violations,
        failures,
        began_s,
        ended_s,
        upgrades.switches,
    )


def durability(faults: Sequence[str]) -> str:
    """The durability with which these faults must lose nothing, and with which they do harm."""
    return "FSYNC_WAL" if {"unplug-all", "slow-disk"}.intersection(faults) else "SYNC_WAL"


def read_all(queue: Queue, folder: Path) -> History:
    """Read all messages and check all bytes; what all processes wrote down is in the history, too.

    A put whose producer was killed may still come in: then what was read is no picture of one
    moment, and it is read again.
    """
    for _ in range(READS_OF_ALL_MAX):
        path = folder / f"{FINAL}.reader.jsonl"
        path.unlink(missing_ok=True)
        before = {ends.partition: ends.count for ends in queue.offsets()}
        _read_partitions(queue, Recorder(path))
        findings = [
            f"{finding.row}: {finding.problem}"
            for partition in range(queue.partitions)
            for finding in list(queue.verify([partition]))[-1].findings
        ]
        counts = {ends.partition: ends.count for ends in queue.offsets()}
        if counts == before:
            break
    return load(folder, FINAL, counts, findings)


def _read_partitions(queue: Queue, recorder: Recorder) -> None:
    recorder.view(dict.fromkeys(range(queue.partitions), 0))
    for partition in range(queue.partitions):
        records = []
        try:
            with queue.scan(partition=partition) as scanner:
                for message in scanner:
                    records.append(noted(message))
                    if len(records) == NOTED_MAX:
                        recorder.read(records)
                        records = []
        except CorruptLogError as exc:
            recorder.broken(str(exc))
        recorder.read(records)
