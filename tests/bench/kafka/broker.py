"""A Kafka broker on this machine: KRaft, one process, in a folder of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from hqueue.errors import LocalServerError
from hqueue.local.freeports import choose_ports
from hqueue.local.jars import JarSet, ensure_jars
from hqueue.local.java import find_java
from hqueue.local.logs import last_lines
from hqueue.local.process import LocalProcess, ProcessPlan, end_all, spawn
from hqueue.local.starting import await_listening
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline

__all__ = ["KAFKA", "Broker", "running_broker"]

SERVER = "kafka_2.13"
"""The broker's jar, whose name ends with its version."""

KAFKA = JarSet(
    "Kafka",
    Path(__file__).with_name("pom.xml").read_bytes(),
    (SERVER, "kafka-server", "kafka-clients", "slf4j-simple"),
    40,
)

HOST = "127.0.0.1"
START_S = 120.0
ORDERLY_S = 30.0

HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""What Kafka's own start script gives a broker."""

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{broker},CONTROLLER://{host}:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.share.min.heartbeat.interval.ms=1000
group.share.heartbeat.interval.ms=1000
"""
"""What one broker alone needs, and heartbeats that let consumers join a share group soon. How it
stores and answers is left at Kafka's defaults."""


@dataclasses.dataclass(frozen=True)
class Broker:
    """A broker that runs."""

    address: str
    version: str
    process: LocalProcess


@contextlib.contextmanager
def running_broker(folder: Path, progress: Callable[[str], None] | None = None) -> Iterator[Broker]:
    """Start a broker, its jars fetched before, and end it afterwards: no process is left.

    Args:
        folder: an empty one, for its data, settings and log.
        progress: called with a line of text when a download begins.

    Raises:
        LocalServerError: it did not come up; the fact `log` has its last lines.
    """
    java, jars = find_java(), ensure_jars(KAFKA, progress=progress)
    ports = choose_ports(("broker", "controller"))
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(host=HOST, data=folder / "data", **ports))
    program = (str(java.executable), "-cp", f"{jars}/*")
    _format(program, settings)
    plan = ProcessPlan(
        "kafka",
        HOST,
        ports,
        (program[0], *HEAP, *program[1:], "kafka.Kafka", str(settings)),
        log=str(folder / "kafka.log"),
    )
    process = spawn(plan)
    try:
        await_listening(process, deadline=Deadline(SYSTEM_CLOCK, START_S * 1e3))
        (jar,) = jars.glob(f"{SERVER}-*.jar")
        version = jar.stem.removeprefix(f"{SERVER}-")
        yield Broker(f"{HOST}:{ports['broker']}", version, process)
    finally:
        end_all([process], orderly_s=ORDERLY_S)


def _format(program: tuple[str, ...], settings: Path) -> None:
    """Give the data folder its cluster's ID, without which no broker starts."""
    cluster = uuid.uuid4().hex[:22]
    command = (*program, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
    log = settings.with_name("format.log")
    with open(log, "wb") as sink:
        done = subprocess.run(
            command, stdout=sink, stderr=subprocess.STDOUT, timeout=START_S, check=False
        )
    if done.returncode:
        raise LocalServerError(
            "Kafka's storage could not be made", log="\n".join(last_lines(log, 20))
        )
