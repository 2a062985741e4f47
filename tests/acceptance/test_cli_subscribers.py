"""Subscribers on the command line: who they are, what arrives, and where they go on."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

import hqueue
from hqueue import Message, MessageID, ReceivedMessage
from hqueue.metadata import Address
from tests.acceptance.commands import DEADLINE_S, Run, Running, Start, command
from tests.support.delivering import Delivering
from tests.support.waiting import wait_for

pytestmark = pytest.mark.usefixtures("server")

SOON = {"HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": "2000"}
"""One that is there is not waited for long."""


@pytest.fixture
def queue(client: hqueue.Client, name: str) -> hqueue.Queue:
    """A queue with two partitions and three messages in the first."""
    created = client.create_queue(name, partitions=2)
    created.put([Message("a", b"1"), Message("b", b"2\n"), Message("a", b"3")], partition=0)
    return created


def address_of(running: Running) -> Address:
    """Where a command listens: it says so on stderr."""
    said = re.search(r"listening at (\S+)\.$", running.error_line())
    assert said is not None
    return Address.parse(said[1])


def test_alibabas_lines_add_and_delete_a_subscriber(run: Run, queue: hqueue.Queue) -> None:
    script = f"""
    add_subscriber '{queue.name}', 'subscriber_1'
    subscribers '{queue.name}'
    hqueue(main):040:0> delete_subscriber ‘{queue.name}′, ‘subscriber_1′
    subscribers {queue.name}
    """
    ended = run("shell", stdin=script.encode())
    assert ended.code == 0, ended.err
    assert ended.lines == ["subscriber_1\t0\t-\t-\t0-0\t3", "subscriber_1\t1\t-\t-\t0-0\t0"]
    missing = run("shell", stdin=f"add_subscriber ‘{queue.name}′".encode())
    assert missing.code == 2
    assert "add_subscriber 'queue_name', 'subscriber_name'" in missing.err


@pytest.mark.thorough("six commands, 9 s")
def test_a_subscriber_that_is_away_is_added_listed_moved_and_deleted(
    run: Run, queue: hqueue.Queue
) -> None:
    ids = [m.id for m in queue.scan(partition=0)]
    assert run("add-subscriber", queue.name, "s", "--start", str(ids[1])).code == 0
    first, second = map(json.loads, run("subscribers", queue.name, "--json").lines)
    assert first == {
        "subscriber": "s",
        "partition": 0,
        "connected": False,
        "address": None,
        "topics": None,
        "checkpoint": str(ids[1]),
        "lag": 2,
        "unreadable": None,
    }
    assert (second["partition"], second["lag"]) == (1, 0)
    assert run("seek", queue.name, "s", "latest", "--partition", "0").code == 0
    assert json.loads(run("subscribers", queue.name, "--json").lines[0])["lag"] == 0
    assert run("seek", queue.name, "s", "1h ago").code == 0
    assert json.loads(run("subscribers", queue.name, "--json").lines[0])["lag"] == 3
    assert run("delete-subscriber", queue.name, "s").code == 2, "no terminal to confirm"
    assert run("delete-subscriber", queue.name, "s", "--yes").code == 0
    assert run("subscribers", queue.name).out == b""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("seek", "QUEUE", "nobody", "latest"), 1),
        (("seek", "QUEUE", "nobody", "yesterday"), 2),
        (("delete-subscriber", "QUEUE", "nobody", "--yes"), 1),
        (("add-subscriber", "QUEUE", "a/b"), 2),
        (("add-subscriber", "QUEUE", "s", "--partition", "7"), 2),
        (("add-subscriber", "no-such-queue", "s"), 1),
        (("subscribers", "no-such-queue"), 1),
        (("subscribe", "QUEUE", "--name", "s", "--partition", "2"), 2),
        (("subscribe", "QUEUE", "--name", "s", "--start", "soon"), 2),
        (("subscribe", "QUEUE", "--name", "s", "--delivery", "speed=1"), 2),
        (("subscribe", "QUEUE", "--name", "s", "--delivery", "timeout_ms=1"), 2),
        (
            ("--zookeeper", "127.0.0.1:1", "--operation-timeout-ms", "500", "subscribers", "QUEUE"),
            3,
        ),
    ],
)
def test_what_can_not_be_done_is_said_with_its_exit_code(
    run: Run, queue: hqueue.Queue, arguments: tuple[str, ...], code: int
) -> None:
    ended = run(*(queue.name if word == "QUEUE" else word for word in arguments))
    assert (ended.code, ended.out) == (code, b""), ended.err
    assert ended.err.startswith("hqueue: error: ")


def test_what_is_delivered_is_printed_before_it_counts_and_sigterm_ends_it(
    run: Run, start: Start, queue: hqueue.Queue
) -> None:
    running = start("subscribe", queue.name, "--name", "s", "--topic", "a", "--format", "json")
    with Delivering(address_of(running)) as worker:
        listed = json.loads(run("subscribers", queue.name, "--json").lines[0])
        assert (listed["connected"], listed["topics"], listed["lag"]) == (True, ["a"], 3)
        refused = run("seek", queue.name, "s", "latest")
        assert (refused.code, "connected" in refused.err) == (1, True)
        assert run("subscribe", queue.name, "--name", "s", env=SOON).code == 1
        sent = list(queue.scan(partition=0, topics=["a"]))
        assert worker.deliver(sent) == 0
        assert [json.loads(running.line())["value"] for _ in sent] == ["1", "3"]
        running.terminate()
        ended = running.end()
    assert (ended.code, ended.out) == (0, b"")
    assert json.loads(run("subscribers", queue.name, "--json").lines[0])["connected"] is False


@pytest.mark.thorough("`test_push_members` has the like, 12 s")
def test_those_that_share_a_name_have_a_partition_each(
    run: Run, start: Start, queue: hqueue.Queue
) -> None:
    sharing = [start("subscribe", queue.name, "--name", "s", "--shared") for _ in range(2)]
    addresses = {str(address_of(running)) for running in sharing}

    def present() -> list[str]:
        lines = run("subscribers", queue.name, "--json").lines
        return [json.loads(line)["address"] for line in lines]

    wait_for(lambda: set(present()) == addresses, "each has one")
    refused = run("subscribe", queue.name, "--name", "s", env=SOON)
    assert (refused.code, "connected" in refused.err) == (1, True)
    sharing[0].terminate()
    assert sharing[0].end().code == 0
    wait_for(lambda: len({*present()}) == 1 and None not in present(), "one has both")
    sharing[1].terminate()
    assert sharing[1].end().code == 0
    assert present() == [None, None]


def test_ctrl_c_ends_it_in_order(run: Run, start: Start, queue: hqueue.Queue) -> None:
    running = start("subscribe", queue.name, "--name", "s")
    address_of(running)
    running.interrupt()
    assert running.end().code == 130
    assert json.loads(run("subscribers", queue.name, "--json").lines[0])["connected"] is False


def test_a_limit_and_a_silence_end_it(start: Start, queue: hqueue.Queue) -> None:
    running = start("subscribe", queue.name, "--name", "s", "--limit", "2", "--format", "raw")
    with Delivering(address_of(running)) as worker:
        for number in range(2):
            assert worker.deliver([ReceivedMessage("t", b"%d" % number, MessageID(number), 0)]) == 0
    ended = running.end()
    assert (ended.code, running.line(), running.line()) == (0, "0", "1")
    idle = start("subscribe", queue.name, "--name", "s", "--idle-ms", "200")
    assert idle.end().code == 0


def test_a_reader_that_went_away_ends_it(environment: dict[str, str], queue: hqueue.Queue) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [*command(), "subscribe", queue.name, "--name", "s"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=DEADLINE_S,
            check=False,
        )
    finally:
        os.close(writing)
    assert ended.returncode == 141
    assert b"Traceback" not in ended.stderr
