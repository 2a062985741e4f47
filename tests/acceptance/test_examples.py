"""The programs in ``examples/`` run as they are, and print what they say."""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import hqueue
from hqueue import Message
from tests.acceptance.commands import DEADLINE_S, Run, Running, Start
from tests.support.waiting import wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.usefixtures("opened")


class Examples:
    """Runs the examples as a user does. What still runs is killed after the test.

    Args:
        environment: where they find the server.
        elsewhere: what is different on a machine that knows no server.
    """

    def __init__(self, environment: dict[str, str], elsewhere: dict[str, str]) -> None:
        self._environment = environment
        self._elsewhere = elsewhere
        self._started: list[Running] = []

    def start(self, program: str, *arguments: str, **environment: str) -> Running:
        interpreter = [sys.executable, str(EXAMPLES / program)]
        self._started.append(Running(arguments, {**self._environment, **environment}, interpreter))
        return self._started[-1]

    def run_elsewhere(self, program: str, *arguments: str) -> list[str]:
        """Like `run`, on a machine that knows no server."""
        return self.run(program, *arguments, **self._elsewhere)

    def run(self, program: str, *arguments: str, **environment: str) -> list[str]:
        """The lines of one that ends well by itself."""
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / program), *arguments],
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def close(self) -> None:
        for running in self._started:
            running.kill()


@pytest.fixture
def elsewhere() -> dict[str, str]:
    """The environment of a machine on which no server is known."""
    return {"HQUEUE_LOCAL_HOME": "/no/server/is/known"}


@pytest.fixture
def examples(environment: dict[str, str], elsewhere: dict[str, str]) -> Iterator[Examples]:
    made = Examples(environment, elsewhere)
    yield made
    made.close()


def test_put_and_scan_reads_back_what_it_put(
    examples: Examples, opened: hqueue.Queue, name: str
) -> None:
    first, *rest = examples.run("put_and_scan.py", name)
    assert rest == ["0 clicks hello", "0 clicks a", "0 views b", "bills since: signed up, paid"]
    (hello,) = opened.scan(partition=0, topics=["clicks"], stop=_after(first))
    assert first == f"put {hello.id}"


def test_keys_and_headers_are_read_back_as_they_were_put(
    examples: Examples, opened: hqueue.Queue, name: str
) -> None:
    assert examples.run("keys_and_headers.py", name) == [
        "bills user-42 signed up",
        "bills user-42 paid",
        "  content-type: text/plain",
        "  trace: a1",
        "  trace: b2",
        "newest: page 3, page 4, page 5",
    ]
    for message in opened.scan():
        assert message.key is not None
        assert message.partition == opened.choose_partition(None, message.key)


def _after(line: str) -> hqueue.MessageID:
    return hqueue.MessageID.parse(line.removeprefix("put ")).next()


def test_the_producer_sends_every_message_and_counts_failures(
    examples: Examples, opened: hqueue.Queue, name: str
) -> None:
    durable, counted = examples.run("producer.py", name, "--count", "2000")
    assert durable.startswith("durable as ")
    assert counted == "sent 2001, failed 0"
    values = Counter(message.value for message in opened.scan())
    assert values == Counter([*(str(number).encode() for number in range(2_000)), b"the last one"])


def test_a_follower_prints_what_comes_and_goes_on_where_it_was(
    examples: Examples, opened: hqueue.Queue, name: str, tmp_path: Path
) -> None:
    positions = str(tmp_path / "positions.json")
    opened.put(Message("t", b"before"), partition=1)
    running = examples.start("follow.py", name, positions, "--idle-ms", "3000")
    assert running.line() == "1 t before"
    opened.put(Message("t", b"meanwhile"), partition=2)
    assert running.line() == "2 t meanwhile"
    ended = running.end()
    assert (ended.code, ended.lines) == (0, [])
    opened.put(Message("t", b"after"), partition=1)
    assert examples.run("follow.py", name, positions, "--idle-ms", "500") == ["1 t after"]


@pytest.mark.usefixtures("server")
def test_two_consumers_of_a_group_share_the_partitions_and_go_on_where_it_was(
    examples: Examples, opened: hqueue.Queue, name: str
) -> None:
    first = examples.start("consumer.py", name, "billing", "--idle-ms", "60000")
    partitions = ", ".join(map(str, range(opened.partitions)))
    assert first.line() == f"# got {partitions}"
    second = examples.start("consumer.py", name, "billing", "--idle-ms", "3000")
    gave_up, got = first.line().split(), second.line().split()
    assert gave_up[:3] == ["#", "gave", "up"]
    assert gave_up[3:] == got[2:]
    opened.put(Message("t", b"hello"), partition=int(got[2].rstrip(",")))
    assert second.line() == f"{got[2].rstrip(',')} t hello"
    assert second.end().code == 0
    assert first.line().split()[:2] == ["#", "got"]
    opened.put(Message("t", b"again"), partition=int(got[2].rstrip(",")))
    assert first.line() == f"{got[2].rstrip(',')} t again"
    first.terminate()
    assert first.end().code == 0


JOB = """
read job
echo "$job" >> {log}
case "$job" in
    good*) ;;
    flaky*) test "$(grep -c "^$job$" {log})" -ge 3 ;;
    deadly) test "$(grep -c "^$job$" {log})" -ge 2 || kill -9 $PPID ;;
    *) exit 7 ;;
esac
"""
"""A command for jobs: some of them fail twice, some always, and one kills who runs it."""


@pytest.mark.usefixtures("server")
def test_jobs_that_fail_are_tried_again_and_rejected_at_last_whoever_is_killed(
    examples: Examples, opened: hqueue.Queue, client: hqueue.Client, name: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = ("sh", "-c", JOB.format(log=log))
    arguments = (name, "workers", "--delay", "0.2", "--delay", "0.5", "--", *command)
    soon = {"HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": "2000"}
    jobs = ["bad", "good 1", "flaky 1", "deadly", "good 2", "flaky 2"]
    for job in jobs:
        opened.put(Message("jobs", job.encode(), b"k", [("n", b"v")]), partition=0)

    def runs() -> Counter[str]:
        return Counter(log.read_text().splitlines() if log.exists() else ())

    def letters() -> list[hqueue.DeadLetter]:
        last = client.queue(f"{name}.retry-2")
        return list(last.dead_letters.waiting(group="workers"))

    killed = examples.start("retry.py", *arguments, **soon)
    assert killed.end().code == -signal.SIGKILL  # By the deadly job.
    between = examples.start("retry.py", *arguments, **soon)
    retries = client.queue(f"{name}.retry-1")
    wait_for(lambda: len([*retries.scan()]) == 3, "all that fail wait for another try")
    between.kill()  # Before it has committed that, or after.
    last = examples.start("retry.py", *arguments, **soon)
    wait_for(lambda: runs()["flaky 1"] >= 3 and runs()["flaky 2"] >= 3, "they are done")
    wait_for(letters, "the bad one is rejected")
    last.terminate()
    assert last.end().code == 0
    (letter,) = letters()
    assert (letter.message.value, letter.reason) == (b"bad", "exit code 7")
    assert (letter.message.key, letter.message.headers) == (b"k", (("n", b"v"),))
    # Each was put once into each queue, however often the job before was run: one that failed again
    # when it was run again after a kill has its last failure behind it sooner.
    put = {
        number: sorted(
            message.value
            for message in client.queue(f"{name}.retry-{number}").scan()
            if b"\n" not in message.value
        )
        for number in (1, 2)
    }
    assert put[1] == [b"bad", b"flaky 1", b"flaky 2"]
    assert len(put[2]) == len(set(put[2]))
    assert b"bad" in put[2]
    assert runs().keys() == set(jobs)
    assert runs()["bad"] >= 3


@pytest.mark.usefixtures("server")
def test_calls_are_made_or_dead_letters_whoever_is_killed(
    examples: Examples, client: hqueue.Client, opened: hqueue.Queue, name: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    def call(task: str, *arguments: str) -> None:
        assert examples.run("task_queue.py", name, "call", task, *map(json.dumps, arguments)) == []

    def work() -> Running:
        return examples.start("task_queue.py", name, "work", "--lock-ms", "1500")

    def done() -> set[str]:
        return set(log.read_text().splitlines() if log.exists() else ())

    def oldest_ms() -> int:
        partitions = client.describe_group("tasks", queue=name).partitions
        return max(each.shared.acquired_age_ms for each in partitions if each.shared)

    killed = [work(), work()]
    call("append", str(log), "first")
    wait_for(lambda: done() == {"first"}, "a worker makes a call")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    call("append", str(pipe), "long")
    wait_for(lambda: oldest_ms() > 3_000, "a call takes longer than its lock lasts")
    assert pipe.read_text() == "long\n", "the other worker did not get it"
    opened.put([Message("append", json.dumps([str(log), str(n)]).encode()) for n in range(40)])
    opened.put(Message("append", json.dumps([str(tmp_path), "never"]).encode()))
    opened.put(Message("unknown", b"[]").delayed(datetime.timedelta(seconds=1)))
    wait_for(lambda: len(done()) > 5, "some calls are made")
    for worker in killed:
        worker.kill()
    last = work()
    wait_for(lambda: done() == {"first", *map(str, range(40))}, "all calls are made")
    letters = opened.dead_letters
    wait_for(lambda: len([*letters.waiting(group="tasks")]) == 2, "the others were tried enough")
    last.terminate()
    assert last.end().code == 0
    reasons = {each.message.topic: each.reason for each in letters.waiting(group="tasks")}
    assert reasons.keys() == {"append", "unknown"}
    assert reasons["append"].startswith("IsADirectoryError")


def test_a_subscriber_gets_what_it_retries_again_and_what_it_rejects_no_more(
    examples: Examples, opened: hqueue.Queue, name: str, start: Start
) -> None:
    start("worker", "--host", "127.0.0.1", "--metrics-port", "0")
    for value in (b"one", b"broken", b"later", b"two"):
        opened.put(Message("pages", value), partition=0)
    running = examples.start("subscriber.py", name, "indexer", "--count", "3")
    assert [running.line() for _ in range(7)] == [
        "subscribed", "indexed: one", "rejected: broken", "not now: later", "indexed: later",
        "indexed: two", "done",
    ]  # fmt: skip
    assert running.end().code == 0


def test_topics_are_published_to_once_and_subscribed_to_with_nothing_but_a_hub(
    examples: Examples, opened: hqueue.Queue, name: str, start: Start, run: Run
) -> None:
    start("hub", name, "--host", "127.0.0.1", "--port", "0", "--metrics-port", "0")
    wait_for(lambda: run("hubs", name).lines, "the hub is available", timeout_s=DEADLINE_S)
    [hub] = map(json.loads, run("hubs", name, "--json").lines)
    for first in (0, 3):
        *lines, again, last = examples.run_elsewhere("topics.py", hub["address"], name, "t")
        assert (again, last) == ("published; again: 3 left out", "done")
        assert lines == [f"t bill {number}" for number in range(first, first + 3)]
    assert [message.value for message in opened.scan_topic("t")] == [
        b"bill %d" % number for number in range(6)
    ]


def test_each_line_is_put_once_though_the_program_is_killed_and_run_again(
    examples: Examples, opened: hqueue.Queue, name: str, tmp_path: Path
) -> None:
    orders = tmp_path / "orders.txt"
    lines = [b"order %d" % number for number in range(20_500)]
    orders.write_bytes(b"".join(line + b"\n" for line in lines))
    killed = examples.start("put_once.py", name, "orders", str(orders))
    begun = [killed.line(), killed.line()]
    killed.kill()
    again = examples.run("put_once.py", name, "orders", str(orders))
    assert len(again) == 21
    assert again[:2] == begun
    assert examples.run("put_once.py", name, "orders", str(orders)) == again
    assert Counter(message.value for message in opened.scan()) == Counter(lines)


def test_record_batches_are_written_and_counted(
    examples: Examples, opened: hqueue.Queue, name: str
) -> None:
    opened.put(Message("odd", b"ones"))
    said = examples.run("arrow_batches.py", name, "--count", "25000")
    assert said == ["wrote 25000 messages", "even: 12500", "odd: 12501"]


@pytest.mark.thorough("`test_read_process_write` has the like")
def test_what_is_read_is_processed_and_written_once(
    examples: Examples, client: hqueue.Client, opened: hqueue.Queue, name: str
) -> None:
    target = client.create_queue(f"{name}-target", partitions=3, ttl="1d")
    for partition in range(3):
        opened.put([Message("t", value) for value in (b"a", b"b", b"c")], partition=partition)
    arguments = ("read_process_write.py", name, target.name, name, "--idle-ms", "3000")
    assert examples.run(*arguments) == ["9 messages are processed"]
    assert examples.run(*arguments) == ["0 messages are processed"]
    assert [m.value for m in target.scan(partition=1)] == [b"A", b"B", b"C"]


@pytest.mark.usefixtures("server")
def test_a_concurrent_consumer_loses_nothing_when_it_dies_and_commits_all_when_it_is_stopped(
    examples: Examples, opened: hqueue.Queue, name: str
) -> None:
    values = [f"m{number}" for number in range(300)]
    for partition in range(opened.partitions):
        several = values[partition :: opened.partitions]
        opened.put([Message("t", value.encode()) for value in several], partition=partition)
    dying = examples.start("concurrent_consumer.py", name, "g", "--idle-ms", "60000")
    begun = [dying.line() for _ in range(100)]
    dying.kill()
    stopped = examples.start("concurrent_consumer.py", name, "g", "--idle-ms", "60000")
    done = {line.split()[2] for line in begun}
    while not done.issuperset(values):
        done.add(stopped.line().split()[2])
    opened.put(Message("t", b"last"), partition=0)
    while "last" not in done:
        done.add(stopped.line().split()[2])
    stopped.terminate()
    ended = stopped.end()
    assert (ended.code, ended.err) == (0, "")
    assert examples.run("concurrent_consumer.py", name, "g", "--idle-ms", "1000") == []


def test_the_web_service_publishes_and_streams_and_ends_with_its_streams(
    examples: Examples, opened: hqueue.Queue, name: str
) -> None:
    running = examples.start("web_service.py", name, "--port", "0")
    log: list[str] = []
    while (at := re.search(r"http://127\.0\.0\.1:[0-9]+", log[-1] if log else "")) is None:
        log.append(running.error_line())
        assert log[-1], log
    with httpx.Client(base_url=at.group(), timeout=DEADLINE_S) as http:
        with http.stream("GET", "/topics/t") as response:
            events = _events(response)
            assert next(events) == {"": "ready"}
            sent = http.post("/topics/t", content=b"one")
            http.post("/topics/other", content=b"not of t")
            http.post("/topics/t", content=b"two")
            first, second = next(events), next(events)
        assert sent.status_code == 201
        assert {m.value for m in opened.scan(topics=["t"])} == {b"one", b"two"}
        assert (first["data"], second["data"]) == ("one", "two")
        for event_id, code in ((first["id"], 200), ("[]", 422), ('{"99": "0"}', 422)):
            with http.stream("GET", "/topics/t", headers={"Last-Event-ID": event_id}) as response:
                assert response.status_code == code
                if code == 200:
                    events = _events(response)
                    assert next(events) == {"": "ready"}
                    assert next(events) == second
        assert http.post("/topics/hqueue.x", content=b"").status_code == 422
        assert http.post("/topics/t", content=bytes(2 << 20)).status_code == 413
        with http.stream("GET", "/topics/t") as response:
            events = _events(response)
            assert next(events) == {"": "ready"}
            running.terminate()
            assert list(events) == []
    ended = running.end()
    assert ended.code == -signal.SIGTERM, ended.err  # As uvicorn ends where it is asked to.
    assert "Finished server process" in ended.err
    assert not re.search("error|warn|traceback|never", ended.err, re.IGNORECASE), ended.err


def _events(response: httpx.Response) -> Iterator[dict[str, str]]:
    """Server-sent events as they come: their fields, that of a comment by no name."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if line:
            field, _, value = line.partition(":")
            fields[field] = value.removeprefix(" ")
        elif fields:
            yield fields
            fields = {}
