"""One run: a cluster under load and faults, drained, read once more, and judged."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import hqueue
from hqueue import Client, HQueueError, Queue, local

from ..integration.proxy import Proxies
from . import producer, reader
from .checker import Violation, check
from .history import History, Recorder, load, now_s
from .nemesis import Event, Nemesis, schedule

__all__ = ["Options", "Result", "run"]

FINAL = "final"
ENDING_S = 180.0
PARTITIONS = 6
CLIENT_SETTINGS = {"operation_timeout_ms": 45_000, "request_timeout_ms": 8_000}
FLUSH_BYTES = 2 * 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Options:
    """What a run is to be.

    Args:
        seed: of the schedule of faults, and of what processes choose.
        duration_s: of the faults; draining and checking come on top.
        faults: the kinds of faults.
        folder: for histories and report.
    """

    seed: int
    duration_s: float
    faults: Sequence[str]
    folder: Path


@dataclasses.dataclass
class Result:
    """What came of it."""

    options: Options
    history: History
    events: list[Event]
    violations: list[Violation]
    began_s: float
    ended_s: float


class _Processes:
    """The producers and readers, each a process of its own."""

    def __init__(self, options: Options, queue: str, settings: dict[str, object]) -> None:
        self._options = options
        self._queue = queue
        self._settings = settings
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._random = random.Random(options.seed)
        self._started = 0

    def start(self, kind: str, style: str) -> None:
        """Start a producer or a reader."""
        self._started += 1
        module = {"producer": producer, "reader": reader}[kind]
        specification = module.Specification(
            name=f"{style}-{self._started}",
            style=style,
            queue=self._queue,
            folder=str(self._options.folder),
            seed=self._random.randrange(2**32),
            settings=self._settings,
        )
        name = f"{kind} {specification.name}"
        log = (self._options.folder / f"{specification.name}.{kind}.log").open("wb")
        with log:
            self._running[name] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    module.__name__,
                    json.dumps(dataclasses.asdict(specification)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[2],
            )

    def producers(self) -> dict[str, int]:
        """The producers' process IDs, by name."""
        return {
            name.removeprefix("producer "): process.pid
            for name, process in self._running.items()
            if name.startswith("producer ")
        }

    def replace(self, name: str) -> None:
        """Start a producer in place of one that was killed; the clock of the new one is right."""
        self._running.pop(f"producer {name}").wait(timeout=30)
        self.start("producer", name.rpartition("-")[0])

    def end(self, kind: str, timeout_s: float) -> list[str]:
        """Wait for all of a kind; those that failed or did not end, and their last words."""
        failed = []
        deadline = time.monotonic() + timeout_s
        for name in [name for name in self._running if name.startswith(kind)]:
            process = self._running.pop(name)
            try:
                code: object = process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = "it did not end"
            if code != 0:
                log = self._options.folder / f"{name.partition(' ')[2]}.{kind}.log"
                failed.append(f"{name}: {code}: {log.read_text(errors='replace')[-2_000:]}")
        return failed

    def kill(self) -> None:
        """Leave none behind."""
        for process in self._running.values():
            process.kill()
            process.wait()


def run(options: Options, server: local.LocalServer, say: Callable[[str], None]) -> Result:
    """Run it on a cluster.

    Raises:
        AssertionError: the run itself failed: a process crashed, or the queue could not be
            drained.
    """
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    name = f"faults-{options.seed}-{os.getpid()}"
    with Proxies(server) as proxies, hqueue.connect(server.settings()) as client:
        queue = client.create_queue(
            name, partitions=PARTITIONS, ttl="1d", memstore_flush_bytes=FLUSH_BYTES,
            compaction_files_min=3, compaction_files_max=10,
        )  # fmt: skip
        settings = proxies.settings(**CLIENT_SETTINGS)
        plain = {
            "gateways": ",".join(map(str, settings.gateways)),
            "zookeeper": settings.zookeeper,
            **CLIENT_SETTINGS,
        }
        processes = _Processes(options, name, plain)
        nemesis = Nemesis(
            server=server, client=client, queue=name, proxies=proxies,
            producers=processes.producers, replace=processes.replace,
            folder=options.folder, say=say,
        )  # fmt: skip
        try:
            began_s = now_s()
            for style in producer.STYLES:
                processes.start("producer", style)
            for style in reader.STYLES:
                processes.start("reader", style)
            nemesis.run(schedule(options.seed, options.duration_s, options.faults))
            say("draining")
            (options.folder / "stop").touch()
            failed = processes.end("producer", ENDING_S)
            (options.folder / "drained").touch()
            failed += processes.end("reader", ENDING_S)
            ended_s = now_s()
        finally:
            processes.kill()
        assert not failed, "\n".join(failed)
        counts = _read_all(client, queue, options.folder)
    history = load(options.folder, FINAL, counts)
    say("checking")
    return Result(options, history, nemesis.events, check(history), began_s, ended_s)


def _read_all(client: Client, queue: Queue, folder: Path) -> dict[int, int]:
    """Read everything once more, check the bytes, and return what the headers count."""
    client.enable_queue(queue.name)
    recorder = Recorder(folder / f"{FINAL}.reader.jsonl")
    for partition in range(queue.partitions):
        recorder.start(partition, 0)
        with queue.scan(partition=partition) as scanner:
            for message in scanner:
                assert message.id is not None
                recorder.read([(partition, int(message.id), reader.token_of(message))])
    found = [finding for result in queue.check() for finding in result.findings]
    if found:
        raise HQueueError("the log is broken", findings=found[:20])
    return {ends.partition: ends.messages for ends in queue.ends()}
