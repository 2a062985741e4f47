"""Consumer groups on the command line: who is in them, what arrives, and where they go on."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue import Consumer, Message, ShareConsumer
from hqueue.errors import GroupNotFoundError
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import PartitionKey
from hqueue.metadata.ports import ANY, Change
from tests.acceptance.commands import DEADLINE_S, Run, Running, command
from tests.support.backends import Backend
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_memory

IDLE = ("--idle-ms", "1500")


@pytest.fixture
def queue(client: hqueue.Client, name: str) -> hqueue.Queue:
    """A queue with two partitions and three messages in the first."""
    created = client.create_queue(name, partitions=2)
    created.put([Message("a", b"1"), Message("b", b"2\n"), Message("a", b"3")], partition=0)
    return created


@pytest.fixture
def group() -> str:
    """A name that no other test has."""
    return f"team {uuid.uuid4().hex[:8]}/x"


def described(run: Run, group: str, *options: str) -> list[dict[str, object]]:
    ended = run("groups", "describe", group, "--json", *options)
    assert ended.code == 0, ended.err
    return [*map(json.loads, ended.lines)]


@pytest.mark.in_memory_first
def test_what_is_written_is_committed_and_the_next_one_goes_on(
    run: Run, queue: hqueue.Queue, group: str
) -> None:
    consume = ("consume", queue.name, "--group", group, "--format", "raw")
    first = run(*consume, "--limit", "2")
    assert (first.code, first.out) == (0, b"1\n2\n\n"), first.err
    assert first.err.startswith(f"Consuming {queue.name} in {group} as ")
    assert run(*consume, "-n", "1").out == b"3\n"
    assert [each["lag"] for each in described(run, group)] == [0, 0]
    assert described(run, group, "--members") == [], "it left"
    nothing = run(*consume, *IDLE)
    assert (nothing.code, nothing.out) == (0, b"")


@pytest.mark.parametrize("chosen", ["text", "json", "raw", "length-prefixed"])
def test_the_formats_are_those_of_scan(
    run: Run, queue: hqueue.Queue, group: str, chosen: str
) -> None:
    consumed = run("consume", queue.name, "-g", group, "-n", "3", "--format", chosen)
    assert consumed.out == run("scan", queue.name, "--format", chosen).out


def test_of_several_queues_each_line_names_its_own(
    run: Run, queue: hqueue.Queue, client: hqueue.Client, group: str
) -> None:
    other = client.create_queue(f"{queue.name}-b", partitions=1)
    other.put(Message("t", b"other"))
    both = run("consume", queue.name, other.name, "-g", group, "-n", "4", "--format", "json")
    values = {document["value"]: document["queue"] for document in map(json.loads, both.lines)}
    assert values == {"1": queue.name, "2\n": queue.name, "3": queue.name, "other": other.name}
    pattern = run("consume", "--pattern", f"{queue.name}-.", "-g", f"{group}2", "-n", "1")
    (line,) = pattern.lines
    assert (line.split("\t")[0], line.split("\t")[-1]) == (other.name, "other")
    assert "queues like" in pattern.err


def test_only_topics_that_are_wanted_come_and_a_new_group_may_begin_at_the_end(
    run: Run, queue: hqueue.Queue, group: str
) -> None:
    consume = ("consume", queue.name, "-g", group, "--format", "raw")
    assert run(*consume, "-t", "a", "-n", "2").out == b"1\n3\n"
    late = ("consume", queue.name, "-g", f"{group}-late", "--format", "raw", "--from", "latest")
    assert run(*late, *IDLE).out == b""
    queue.put(Message("a", b"new"), partition=0)
    assert run(*late, "-n", "1").out == b"new\n"


@pytest.mark.in_memory_first
def test_a_second_consumer_of_an_instance_id_is_refused_and_the_first_one_goes_on(
    run: Run, queue: hqueue.Queue, client: hqueue.Client, group: str
) -> None:
    with Consumer(queue.name, group=group, instance_id="static", client=client) as first:
        assert len(first.poll(20_000)) == 3
        path = GroupPaths("/hqueue", group).member("static")
        records = client.coordination.store.records
        before = records.read([path])
        second = ("consume", queue.name, "-g", group, "--instance-id", "static", *IDLE)
        refused = run(*second, env={"HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": "2000"})
        assert refused.code != 0
        assert "another consumer with this ID is in the group" in refused.err
        assert records.read([path]) == before
        queue.put(Message("a", b"more"), partition=1)
        assert [message.value for message in first.poll(20_000)] == [b"more"]
        records.delete({path: ANY})  # As an operator may.
        wait_for(lambda: records.read([path]), "it registers again")
        queue.put(Message("a", b"and more"), partition=0)
        assert [message.value for message in first.poll(20_000)] == [b"and more"]


def test_an_offset_that_can_not_be_read_is_named_and_reset_alone(
    run: Run, queue: hqueue.Queue, client: hqueue.Client, group: str
) -> None:
    assert run("consume", queue.name, "-g", group, "-n", "2").code == 0
    records = client.coordination.store.records
    path = GroupPaths("/hqueue", group).offset(PartitionKey(queue.name, 0))
    records.write({path: Change(b"garbage", ANY)})
    shown = run("groups", "describe", group)
    assert shown.code == 0
    assert [line.split("\t")[3] for line in shown.lines] == ["unreadable", "0-1"]
    assert shown.err.startswith(
        f"{queue.name} 0: this node or row is not a record of hqueue [path='{path}'"
    )
    first, second = described(run, group)
    assert path in str(first["unreadable"])
    assert second["unreadable"] is None
    reset = run("groups", "reset", group, queue.name, "--to", "earliest", "-p", "0", "--yes")
    assert reset.code == 0, reset.err
    assert [each["unreadable"] for each in described(run, group)] == [None, None]
    assert (
        run("consume", queue.name, "-g", group, "-n", "3", "--format", "raw").out == b"1\n2\n\n3\n"
    )


@pytest.mark.in_memory_first
def test_a_group_is_listed_described_reset_and_deleted(
    run: Run, queue: hqueue.Queue, group: str
) -> None:
    ids = [str(m.id) for m in queue.scan(partition=0)]
    assert run("consume", queue.name, "-g", group, "-n", "2").code == 0
    listed = [line.split("\t") for line in run("groups", "list").lines]
    assert [group, "0", queue.name, "consumer"] in listed
    documents = map(json.loads, run("groups", "list", "--json").lines)
    entry = {"group": group, "members": 0, "queues": [queue.name], "kind": "consumer"}
    assert entry in documents
    first, second = described(run, group)
    assert first.pop("age_ms") is not None
    assert first == {
        "queue": queue.name,
        "partition": 0,
        "consumer": None,
        "offset": ids[2],
        "lag": 1,
        "unreadable": None,
    }
    assert (second["partition"], second["lag"]) == (1, 0)
    text = run("groups", "describe", group, "--queue", queue.name).lines
    assert text[0] == f"{queue.name}\t0\t-\t{ids[2]}\t1"

    reset = ("groups", "reset", group, queue.name, "--to")
    assert run(*reset, "earliest").code == 2, "no terminal to confirm"
    moved = run(*reset, ids[1], "--partition", "0", "--yes")
    assert (moved.code, moved.out) == (0, b"")
    assert moved.err == f"{group} continues in {queue.name} at {ids[1]}: 1 partition.\n"
    assert described(run, group)[0]["lag"] == 2
    assert run(*reset, "1h ago", "-y").code == 0
    assert described(run, group)[0]["lag"] == 3
    assert run(*reset, "now", "-y").code == 0
    assert described(run, group)[0]["lag"] == 0

    delete = ("groups", "delete", group)
    assert run(*delete).code == 2, "no terminal to confirm"
    assert run(*delete, "--queue", queue.name, "--yes").code == 0
    gone = run("groups", "describe", group)
    assert (gone.code, "there is no such group" in gone.err) == (1, True)


def test_a_group_with_consumers_is_described_with_them_and_not_changed(
    run: Run, client: hqueue.Client, queue: hqueue.Queue, group: str
) -> None:
    with Consumer(queue.name, group=group, client=client) as consumer:
        wait_for(lambda: consumer.poll(10) or len(consumer.assignment()) == 2, "it has both")
        owner = consumer.consumer_id
        wait_for(
            lambda: [each["consumer"] for each in described(run, group)] == [owner] * 2,
            "both are its own",
        )
        assert described(run, group, "--members") == [
            {"consumer": owner, "partitions": 2, "streams": {queue.name: 1}}
        ]
        members = run("groups", "describe", group, "--members").lines
        assert members == [f"{owner}\t2\t{queue.name}"]
        for command_line in (
            ("reset", group, queue.name, "--to", "latest", "-y"),
            ("delete", group, "-y"),
        ):
            refused = run("groups", *command_line)
            assert refused.code == 1
            assert "stop them first" in refused.err
            assert owner in refused.err


def test_a_share_group_is_described_with_the_messages_that_its_consumers_have(
    run: Run, client: hqueue.Client, queue: hqueue.Queue, group: str
) -> None:
    with ShareConsumer(queue.name, group=group, client=client, auto_acknowledge=False) as consumer:
        messages = consumer.poll(20_000)
        assert [m.value for m in messages] == [b"1", b"2\n", b"3"]
        assert consumer.poll(0) == []
        first, second = described(run, group)
        assert first.pop("age_ms") is not None
        assert first.pop("acquired_age_ms") is not None
        assert first == {
            "queue": queue.name,
            "partition": 0,
            "consumer": None,
            "offset": str(hqueue.MessageID(0, 1)),
            "lag": 3,
            "unreadable": None,
            "acquired": 3,
            "redelivered": 0,
            "released": 0,
            "holders": {consumer.consumer_id: 3},
            "delayed": 0,
            "next_due_ms": None,
            "rejected": 0,
            "exhausted": 0,
        }
        assert (second["lag"], second["acquired"]) == (0, 0)
        rows = [line.split("\t") for line in run("groups", "describe", group).lines]
        assert [row[2] for row in rows] == ["1", "0"]
        assert [[*row[4:5], *row[6:]] for row in rows] == [
            ["3", "3", "0", "0", "0", "-", "0", "0"],
            [*["0"] * 5, "-", "0", "0"],
        ]
        later = [Message("t", b"later").delayed(2_000_000_000_000 + n) for n in range(2)]
        queue.put(later, partition=1)
        assert consumer.poll(20) == []
        second = described(run, group)[1]
        assert (second["delayed"], second["next_due_ms"]) == (2, 2_000_000_000_000)
        assert second["lag"] == 0
        assert described(run, group, "--members") == [
            {"consumer": consumer.consumer_id, "partitions": 1, "streams": {queue.name: 1}}
        ]
        rows = [line.split("\t")[2:7] for line in run("lag", queue.name).lines]
        assert rows == [[group, "0", "-", "yes", "3"], [group, "1", "-", "yes", "0"]]
        consumer.reject(messages[0], reason="not a number")
        consumer.commit()
        counted = described(run, group)[0]
        assert (counted["acquired"], counted["rejected"], counted["exhausted"]) == (2, 1, 0)
        rows = [line.split("\t") for line in run("groups", "describe", group).lines]
        assert [row[-2:] for row in rows] == [["1", "0"], ["0", "0"]]
        assert run("groups", "reset", group, queue.name, "--to", "latest", "-y").code == 1
    assert run("consume", queue.name, "-g", group).code == 1, "no share group"
    assert run("groups", "reset", group, queue.name, "--to", "latest", "-y").code == 0
    assert [(each["lag"], each["rejected"]) for each in described(run, group)] == [(0, 0)] * 2
    assert run("groups", "delete", group, "-y").code == 0
    assert run("groups", "describe", group).code == 1


def test_lag_shows_groups_beside_subscribers(run: Run, queue: hqueue.Queue, group: str) -> None:
    assert run("add-subscriber", queue.name, "s", "--partition", "0").code == 0
    assert run("consume", queue.name, "-g", group, "-n", "1").code == 0
    rows = [line.split("\t")[:-1] for line in run("lag", queue.name).lines]
    assert rows == [
        [queue.name, "s", "-", "0", "-", "no", "3"],
        [queue.name, "-", group, "0", "-", "no", "2"],
        [queue.name, "-", group, "1", "-", "no", "0"],
    ]
    only = [json.loads(line) for line in run("lag", queue.name, "-g", group, "--json").lines]
    assert [(each["group"], each["subscriber"], each["lag"]) for each in only] == [
        (group, None, 2),
        (group, None, 0),
    ]
    assert len(run("lag", queue.name, "--subscriber", "s").lines) == 1
    assert all(group in line for line in run("lag", "--group", group).lines)


@pytest.mark.in_memory
def test_the_lag_of_a_stream_of_spark_is_measured_from_its_checkpoint(
    run: Run, queue: hqueue.Queue, tmp_path: Path
) -> None:
    first = next(iter(queue.scan(partition=0)))
    offset = {"partitions": {"0": [int(first.id.next()), 1], "1": [0, 0], "7": [0, 0]}}
    for folder, lines in {"offsets": ["{}", json.dumps(offset)], "commits": ["{}"]}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "4").write_text("\n".join(["v1", *lines]))
    command = ("lag", queue.name, "--checkpoint", str(tmp_path))
    rows = [line.split("\t")[:-1] for line in run(*command).lines]
    assert rows == [
        [queue.name, "-", "-", "0", "-", "no", "2"],
        [queue.name, "-", "-", "1", "-", "no", "0"],
    ]
    documents = [json.loads(line) for line in run(*command, "--json").lines]
    assert [(each["checkpoint"], each["lag"]) for each in documents] == [
        (str(tmp_path), 2),
        (str(tmp_path), 0),
    ]
    (tmp_path / "offsets" / "4").unlink()
    refused = run(*command)
    assert (refused.code, "give the query's checkpointLocation" in refused.err) == (2, True)


def test_the_shell_knows_these_commands(run: Run, queue: hqueue.Queue, group: str) -> None:
    script = f"""
    consume {queue.name} --group '{group}' --limit 3 --format raw
    groups describe '{group}' --queue {queue.name}
    groups reset '{group}' {queue.name} --to earliest
    groups delete '{group}'
    help groups
    help consume
    """
    ended = run("shell", stdin=script.encode())
    assert ended.code == 0, ended.err
    assert ended.lines[:4] == ["1", "2", "", "3"]
    assert [line.split("\t")[4] for line in ended.lines[4:6]] == ["0", "0"]
    text = ended.out.decode()
    assert all(f" {each} " in text for each in ("reset", "describe", "--instance-id"))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("consume", "QUEUE"), 2),
        (("consume", "--group", "g"), 2),
        (("consume", "QUEUE", "--group", "g", "--pattern", "a"), 2),
        (("consume", "--pattern", "(", "--group", "g"), 2),
        (("consume", "QUEUE", "--group", ""), 2),
        (("consume", "QUEUE", "--group", "x" * 201), 2),
        (("consume", "QUEUE", "--group", "g", "--from", "5-0"), 2),
        (("consume", "QUEUE", "--group", "g", "--limit", "0"), 2),
        (("consume", "QUEUE", "--group", "g", "--instance-id", "x" * 201), 2),
        (("consume", "no-such-queue", "--group", "g"), 1),
        (("groups", "describe", "nobody"), 1),
        (("groups", "delete", "nobody", "--yes"), 1),
        (("groups", "delete", "nobody", "--queue", "a/b", "--yes"), 2),
        (("groups", "reset", "nobody", "QUEUE", "--to", "latest", "--yes"), 1),
        (("groups", "reset", "nobody", "no-such-queue", "--to", "latest", "--yes"), 1),
        (("groups", "reset", "g", "QUEUE", "--to", "yesterday", "--yes"), 2),
        (("groups", "reset", "g", "QUEUE", "--yes"), 2),
        (("groups", "reset", "g", "QUEUE", "--to", "latest", "-p", "2", "--yes"), 2),
    ],
)
def test_what_can_not_be_done_is_said_with_its_exit_code(
    run: Run, queue: hqueue.Queue, arguments: tuple[str, ...], code: int
) -> None:
    ended = run(*(queue.name if word == "QUEUE" else word for word in arguments))
    assert (ended.code, ended.out) == (code, b""), ended.err
    assert "rror" in ended.err


class Processes:
    """Real commands, and a client, on one back end."""

    def __init__(self, client: hqueue.Client, environment: dict[str, str]) -> None:
        self.client = client
        self.environment = environment
        self.started: list[Running] = []

    def consume(self, *arguments: str) -> Running:
        """A consumer, once it has subscribed."""
        self.started.append(Running(("consume", *arguments), self.environment))
        assert self.started[-1].error_line().startswith("Consuming ")
        return self.started[-1]

    def owners(self, group: str) -> list[str | None]:
        try:
            return [each.owner for each in self.client.describe_group(group).partitions]
        except GroupNotFoundError:
            return []

    def lag(self, group: str) -> int:
        lags = [each.lag for each in self.client.describe_group(group).partitions]
        return sum(lag.messages for lag in lags if lag is not None)


@pytest.fixture
def processes(
    backend: Backend, process_environment: dict[str, str], tmp_path: Path
) -> Iterator[Processes]:
    """Over gateways in memory: with a ZooKeeper in memory."""
    environment = {**process_environment, "XDG_STATE_HOME": str(tmp_path), "COLUMNS": "120"}
    if "HQUEUE_GATEWAYS" not in environment:
        with backend.connect() as client:
            yield from _processes(client, environment)
        return
    with MemoryZooKeeper() as zookeeper:
        environment["HQUEUE_ZOOKEEPER"] = address = f"127.0.0.1:{zookeeper.port}"
        with backend.connect(zookeeper=address) as client:
            yield from _processes(client, environment)


def _processes(client: hqueue.Client, environment: dict[str, str]) -> Iterator[Processes]:
    made = Processes(client, environment)
    yield made
    for running in made.started:
        running.kill()


@pytest.mark.thorough("processes that wait for one another")
@pytest.mark.parametrize(
    ("end", "code"), [(Running.terminate, 0), (Running.interrupt, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_signal_ends_it_in_order_with_all_that_was_written_committed(
    processes: Processes,
    queue: hqueue.Queue,
    group: str,
    end: Callable[[Running], None],
    code: int,
) -> None:
    running = processes.consume(queue.name, "--group", group, "--format", "raw")
    assert [running.line() for _ in range(4)] == ["1", "2", "", "3"]
    queue.put(Message("a", b"4"), partition=1)
    assert running.line() == "4"
    end(running)
    ended = running.end()
    assert (ended.code, ended.out) == (code, b""), ended.err
    assert "Traceback" not in ended.err
    assert processes.client.describe_group(group).members == {}
    assert processes.owners(group) == [None, None]
    assert processes.lag(group) == 0


@pytest.mark.in_memory_first
@pytest.mark.thorough("waits for a session to end")
def test_two_share_the_partitions_and_one_that_is_killed_leaves_them_to_the_other(
    processes: Processes, queue: hqueue.Queue, group: str
) -> None:
    processes.environment["HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS"] = "2000"
    options = (queue.name, "--group", group, "--format", "raw")
    first, second = (processes.consume(*options, "--instance-id", each) for each in "ab")
    wait_for(lambda: set(processes.owners(group)) == {"a", "b"}, "each has one")
    wait_for(lambda: processes.lag(group) == 0, "what there was is committed")
    first.kill()
    wait_for(lambda: processes.owners(group) == ["b", "b"], "the other has both")
    queue.put(Message("t", b"left"), partition=0)
    queue.put(Message("t", b"right"), partition=1)
    came: set[str] = set()
    while not {"left", "right"} <= came:
        came.add(second.line())
    second.terminate()
    assert second.end().code == 0


@pytest.mark.in_memory_first
@pytest.mark.thorough("processes that wait for one another")
def test_what_could_not_be_written_is_not_committed(
    processes: Processes, queue: hqueue.Queue, group: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [*command(), "consume", queue.name, "--group", group],
            env=processes.environment,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=DEADLINE_S,
            check=False,
        )
    finally:
        os.close(writing)
    assert ended.returncode == 141, ended.stderr
    assert b"Traceback" not in ended.stderr
    # It may have ended before it had a partition.
    assert processes.owners(group) in ([], [None], [None, None])
    with Consumer(queue.name, group=group, client=processes.client) as consumer:
        assert [m.value for m in consumer.poll(60_000)] == [b"1", b"2\n", b"3"]


@pytest.mark.thorough("a process of its own")
def test_a_disk_that_is_full_ends_it_and_nothing_of_it_is_committed(
    processes: Processes, queue: hqueue.Queue, group: str
) -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*command(), "consume", queue.name, "--group", group],
            env=processes.environment,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=DEADLINE_S,
            check=False,
        )
    assert ended.returncode == 1
    assert b"can't write to stdout" in ended.stderr
    assert processes.lag(group) == 3
    assert processes.client.describe_group(group).members == {}
