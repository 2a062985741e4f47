"""One program on Spark's own cluster, on two hosts, to which the packages come as files: where its
tasks run, and that each message comes once if tasks are overtaken, and executors killed or drained.
"""

from __future__ import annotations

import collections
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import hqueue
from hqueue import Message, local
from tests.support.waiting import wait_for

from .standalone import SparkCluster
from .submitting import Submitted, bare_python, make_package

pytestmark = [
    pytest.mark.usefixtures("spark_environment"),
    pytest.mark.thorough("a cluster of Spark's and a driver on it, 45 s for all of these"),
]

MakeQueue = Callable[..., hqueue.Queue]

HOSTS = ("127.0.0.1", "127.0.0.2")
MESSAGES = 60_000
"""In each of two partitions, each of which is read by two tasks: some chunks of the sink's."""

CONF = {
    "spark.executor.memory": "512m",
    "spark.locality.wait": "60s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.decommission.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2500",
    # A second try of a task that takes longer than another one, once that one has ended.
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}


@pytest.fixture(scope="module")
def cluster(
    server: local.LocalServer, spark_environment: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster"), HOSTS) as started:
        yield started


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("package") / "hqueue.zip")


@pytest.fixture(scope="module")
def submitted(
    cluster: SparkCluster, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Submitted]:
    folder = tmp_path_factory.mktemp("submitted")
    python = bare_python(folder / "python")
    with Submitted(cluster.url, folder, python, package, CONF) as started:
        yield started


class Case:
    """A queue with messages, and what Spark reads it with."""

    def __init__(self, queue: hqueue.Queue, server: local.LocalServer, folder: Path) -> None:
        self.queue = queue
        self.mark = folder / "mark"
        self.checkpoint = folder / "checkpoint"
        self.options = {
            "queue": queue.name,
            "hqueue.hbase": "native",
            "hqueue.zookeeper": server.zookeeper,
            "minPartitions": "4",
        }
        for partition in range(2):
            some = [Message("ab"[n % 2], b"%d:%040d" % (partition, n)) for n in range(MESSAGES)]
            for first in range(0, MESSAGES, 5_000):
                queue.put(some[first : first + 5_000], partition=partition)

    def copy_to(self, target: hqueue.Queue) -> dict[str, object]:
        """What the program needs for a copy, which has the target's name."""
        return {
            "options": self.options,
            "name": target.name,
            "target": target.name,
            "checkpoint": str(self.checkpoint),
            "mark": str(self.mark),
        }

    def await_mark(self, *tasks: int) -> None:
        """Wait until these tasks stand still."""
        for task in tasks:
            wait_for(
                self.mark.with_suffix(f".{task}").exists,
                f"task {task} stands still",
                timeout_s=240,
            )

    def let_go(self) -> None:
        self.mark.with_suffix(".go").touch()

    def check_copy(self, target: hqueue.Queue) -> None:
        """Each message is in the target once."""
        counts = collections.Counter((m.topic, m.value) for m in target.scan())
        assert counts == collections.Counter((m.topic, m.value) for m in self.queue.scan())


@pytest.fixture
def case(make_queue: MakeQueue, server: local.LocalServer, tmp_path: Path) -> Iterator[Case]:
    made = Case(make_queue(2), server, tmp_path)
    yield made
    made.let_go()  # Of a test that failed, too: the others have the same driver.


@pytest.fixture(autouse=True)
def executors(submitted: Submitted) -> None:
    """There is one on each host, also after a test that took one away."""
    wait_for(
        lambda: submitted.run("executors") == len(HOSTS),
        "executors are up",
        timeout_s=240,
        pause_s=0.2,
    )


def executor_on(cluster: SparkCluster, host: str) -> psutil.Process:
    """The executor of one of the cluster's workers."""
    (found,) = (
        process
        for process, command in cluster.started()
        if host in command and any("CoarseGrainedExecutorBackend" in word for word in command)
    )
    return found


def test_the_packages_come_as_files_to_the_driver_and_its_tasks(
    submitted: Submitted, case: Case, package: Path
) -> None:
    found = submitted.run("packages")
    for file in (*found["driver"], *found["tasks"]):
        assert f"/{package.name}/hqueue/" in file
    read = submitted.run("read", options=case.options, name="files", located=False)
    assert read == {"rows": 2 * MESSAGES, "values": 2 * MESSAGES}


def test_the_event_log_shows_that_a_located_read_runs_near_its_data_and_the_source_anywhere(
    submitted: Submitted, case: Case
) -> None:
    for name, located in (("located", True), ("anywhere", False)):
        read = submitted.run("read", options=case.options, name=name, located=located)
        assert read["rows"] == 2 * MESSAGES
        tasks = wait_for(
            lambda: len(found := submitted.event_log.tasks_of(name)) == 4 and found,  # noqa: B023
            "the log has the tasks",
        )
        ran = {(each["Task Info"]["Host"], each["Task Info"]["Locality"]) for each in tasks}
        if located:
            assert ran == {("127.0.0.1", "NODE_LOCAL")}
        else:  # So Spark calls tasks that prefer nothing.
            assert {locality for _, locality in ran} == {"PROCESS_LOCAL"}


def test_a_task_that_stands_still_is_overtaken_and_each_message_written_once(
    submitted: Submitted, case: Case, make_queue: MakeQueue
) -> None:
    target = make_queue(2)
    submitted.run("copy", **case.copy_to(target), only=0)
    case.await_mark(0)
    case.let_go()
    case.check_copy(target)

    def tries(kind: str) -> list[dict[str, Any]]:
        tasks = submitted.event_log.tasks_of(target.name, kind)
        return [each for each in tasks if each["Task Info"]["Index"] == 0]

    # Either of its two tries may have come to the mark first, and stood still.
    wait_for(lambda: tries("TaskEnd"), "the log has the end of the task")
    assert any(each["Task Info"]["Speculative"] for each in tries("TaskStart"))
    assert [each["Task End Reason"]["Reason"] for each in tries("TaskEnd")].count("Success") == 1


GOES = pytest.mark.parametrize("goes", [signal.SIGKILL, signal.SIGPWR], ids=["killed", "drained"])
"""SIGPWR decommissions an executor: it ends what it does, and begins nothing more."""


@GOES
def test_an_executor_goes_in_the_middle_of_a_copy_and_each_message_is_written_once(
    submitted: Submitted,
    cluster: SparkCluster,
    case: Case,
    make_queue: MakeQueue,
    goes: signal.Signals,
) -> None:
    target, log = make_queue(2), submitted.event_log
    submitted.begin("copy", **case.copy_to(target))
    case.await_mark(0, 1)
    wait_for(
        lambda: sum(each.end_ordinal for each in target.offsets()) >= 20_000,
        "tasks have written some of their rows",
        timeout_s=240,
    )
    removed = len(log.events("ExecutorRemoved"))
    executor = executor_on(cluster, HOSTS[1])
    executor.send_signal(goes)
    if goes is signal.SIGKILL:
        executor.wait(60)
    case.let_go()
    submitted.result()
    case.check_copy(target)
    reason = "" if goes is signal.SIGKILL else "decommission"
    wait_for(
        lambda: any(
            reason in each["Removed Reason"] for each in log.events("ExecutorRemoved")[removed:]
        ),
        "the executor has ended",
        timeout_s=240,
    )
    ends = [each["Task End Reason"]["Reason"] for each in log.tasks_of(target.name)]
    assert ("ExecutorLostFailure" in ends) == (goes is signal.SIGKILL), ends
