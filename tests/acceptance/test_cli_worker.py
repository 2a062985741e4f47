"""``hqueue worker``, ``lag`` and ``dead-letters``, and what a worker shows of itself."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import hqueue
from hqueue import DeliveryOptions, Message, ReceivedMessage, Status, Subscription
from hqueue.dead_letters.topics import dead_letter_topic, redrive_topic
from tests.acceptance.commands import Run, Running, Start
from tests.support.waiting import wait_for

pytestmark = pytest.mark.usefixtures("server")

DEPLOY = Path(__file__).parents[2] / "workers" / "deploy"


class Choosy:
    """A listener that rejects what is bad, until that is mended."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.mended = False

    def __call__(self, messages: Sequence[ReceivedMessage]) -> Status:
        self.values.extend(message.value for message in messages)
        bad = any(message.value.startswith(b"bad") for message in messages)
        return Status.DEAD_LETTER if bad and not self.mended else Status.DONE


@pytest.fixture
def port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def worker(start: Start, port: int) -> Iterator[Running]:
    """A worker whose metrics are at `port`."""
    running = start("worker", "--host", "127.0.0.1", "--metrics-port", str(port))
    wait_for(lambda: health(port) == 200, "the worker is well")
    return running


def page(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def health(port: int) -> int:
    try:
        return page(port, "/health")[0]
    except OSError:
        return 0


def metric(port: int, name: str, subscriber: str) -> float:
    """The sum of a metric over the partitions."""
    pattern = rf'^{name}{{[^}}]*subscriber="{subscriber}"[^}}]*}} (\S+)$'
    return sum(map(float, re.findall(pattern, page(port, "/metrics")[1], re.MULTILINE)))


def test_a_worker_delivers_and_shows_what_it_does(
    worker: Running, opened: hqueue.Queue, run: Run, port: int, name: str
) -> None:
    listener = Choosy()
    options = DeliveryOptions(batch_messages_max=1)
    with opened.subscriber(Subscription("s", delivery=options), listener):
        for partition in range(3):
            bad = Message("t", b"bad", b"key %d" % partition, [("trace", b"a1")])
            opened.put([Message("t", b"good"), bad], partition=partition)
        wait_for(lambda: len(listener.values) == 6, "all came")
        wait_for(lambda: metric(port, "hqueue_dead_letters_total", "s") == 3, "they are counted")
        assert metric(port, "hqueue_delivered_messages_total", "s") == 3
        assert metric(port, "hqueue_delivery_latency_seconds_count", "s") == 3
        # The dead letters themselves lie behind what was delivered; they are passed by.
        wait_for(lambda: metric(port, "hqueue_lag_messages", "s") == 0, "nothing is left")
        status, document = page(port, "/health")
        assert (status, json.loads(document)["partitions"]) == (200, 3)
        assert page(port, "/elsewhere")[0] == 404

        def behind() -> list[int]:
            lags = map(json.loads, run("lag", name, "--json").lines)
            return [lag["lag"] for lag in lags if lag["subscriber"] == "s" and lag["connected"]]

        wait_for(lambda: behind() == [0, 0, 0], "the checkpoints are written")

        letters = [json.loads(line) for line in run("dead-letters", name, "s", "--json").lines]
        assert [letter["value"] for letter in letters] == ["bad"] * 3
        assert [(letter["key"], letter["headers"]) for letter in letters] == [
            (f"key {letter['partition']}", [{"name": "trace", "value": "a1"}]) for letter in letters
        ]
        rows = run("dead-letters", name, "s", "--print-key", "--print-headers", "-p", "2").lines
        assert [row.split("\t")[6:] for row in rows] == [["key 2", "trace=a1", "bad"]]
        listener.mended = True
        one = letters[1]
        put = run("dead-letters", name, "s", "-p", str(one["partition"]), "--redrive", one["id"])
        assert put.code == 0
        wait_for(lambda: len(listener.values) == 7, "it came back")
        again = run("dead-letters", name, "s", "-p", str(one["partition"]), "--redrive", one["id"])
        assert again.code == 2
        assert run("dead-letters", name, "s", "--redrive-all").code == 0
        wait_for(lambda: len(listener.values) == 9, "all came back")
        assert run("dead-letters", name, "s").lines == []
        opened._log.appender.put_system([Message(dead_letter_topic("s"), b"anything")], 1)
        shown = run("dead-letters", name, "s")
        assert (shown.code, shown.lines) == (0, [])
        assert "Not a valid dead letter: partition 1, " in shown.err
        refused = run("put", name, "anything", "--topic", redrive_topic("s"))
        assert refused.code == 2
        assert "system's own" in refused.err
        # A copy has the messages, and none of the system's own.
        scanned = run("scan", name, "--format", "json").out
        copied = run("put", name, "--format", "json", stdin=scanned)
        assert (copied.code, "Left out: 7 " in copied.err) == (0, True)
    worker.terminate()
    assert worker.end().code == 0


def test_lag_counts_what_a_subscriber_that_is_away_has_missed(
    opened: hqueue.Queue, run: Run, name: str
) -> None:
    opened.put([Message("t", b"1")] * 5, partition=1)
    assert run("add-subscriber", name, "away", "--start", "latest", "-p", "1").code == 0
    opened.put([Message("t", b"2")] * 7, partition=1)
    (line,) = run("lag", name).lines
    queue, subscriber, group, partition, worker, connected, lag, age_ms = line.split("\t")
    assert (queue, subscriber, group, partition) == (name, "away", "-", "1")
    assert (worker, connected, lag) == ("-", "no", "7")
    assert int(age_ms) >= 0


@pytest.mark.thorough("what a worker shows of groups is tested over memory, too")
def test_a_worker_shows_the_lag_of_a_group_also_in_a_queue_without_subscribers(
    opened: hqueue.Queue, run: Run, worker: Running, port: int, name: str
) -> None:
    opened.put([Message("t", b"1")] * 5, partition=1)
    assert run("consume", name, "--group", f"of {name}", "--limit", "2").code == 0
    labels = f'group="of {name}",partition="1",queue="{name}"'
    wait_for(
        lambda: f"hqueue_group_lag_messages{{{labels}}} 3.0\n" in page(port, "/metrics")[1],
        "three are left",
    )
    assert f'hqueue_group_members{{group="of {name}"}} 0.0\n' in page(port, "/metrics")[1]
    worker.terminate()
    assert worker.end().code == 0


def test_a_wrong_setting_of_a_worker_is_refused(run: Run, port: int) -> None:
    unknown = run("worker", env={"HQUEUE_WORKER_POLL_MS": "5"})
    assert unknown.code == 2
    assert "poll_ms_max" in unknown.err
    wrong = run("worker", "--threads", "0")
    assert wrong.code == 2
    with socket.create_server(("127.0.0.1", port)):
        taken = run("worker", "--host", "127.0.0.1", "--metrics-port", str(port))
    assert taken.code == 2
    assert "metrics_port" in taken.err


def test_the_example_settings_are_accepted(run: Run, tmp_path: Path) -> None:
    wrong = tmp_path / "hqueue.toml"
    text = (DEPLOY / "hqueue.toml").read_text(encoding="utf-8")
    wrong.write_text(text + "threads = 0\n", encoding="utf-8")
    refused = run("worker", env={"HQUEUE_CONFIG": str(wrong)})
    assert refused.code == 2
    # All that stands in the example is known: what is refused is what was added.
    assert "threads" in refused.err


def test_a_worker_is_a_hub_too(
    environment: dict[str, str], opened: hqueue.Queue, run: Run, port: int
) -> None:
    came: list[bytes] = []

    def listener(messages: Sequence[ReceivedMessage]) -> Status:
        came.extend(message.value for message in messages)
        return Status.DONE

    settings = {
        "HQUEUE_HUB_HOST": "127.0.0.1",
        "HQUEUE_HUB_PORT": "0",
        "HQUEUE_HUB_METRICS_PORT": "0",
    }
    arguments = ("worker", "--host", "127.0.0.1", "--metrics-port", str(port))
    both = Running((*arguments, "--hub-queues", opened.name), {**environment, **settings})
    try:
        wait_for(lambda: health(port) == 200, "the worker is well")
        hubs = wait_for(lambda: run("hubs", opened.name, "--json").lines, "the hub is there")
        address = json.loads(hubs[0])["address"]
        with opened.subscriber(Subscription("s"), listener):
            published = run("publish", "t", "value", "-q", opened.name, "--hubs", address)
            assert published.code == 0, published.err
            wait_for(lambda: came == [b"value"], "what the hub wrote is pushed")
        both.terminate()
        assert both.end().code == 0
        assert run("hubs", opened.name, "--json").lines == []
    finally:
        both.kill()
