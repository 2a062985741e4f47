"""Dead letters on the command line: of groups, of subscribers, and of everyone."""

from __future__ import annotations

import json
import uuid

import pytest

import hqueue
from hqueue import Consumer, DeadLetter, Message
from tests.acceptance.commands import Run
from tests.support.consuming import take

pytestmark = pytest.mark.in_memory


@pytest.fixture
def queue(client: hqueue.Client, name: str) -> hqueue.Queue:
    """A queue with two partitions and three messages in the first."""
    created = client.create_queue(name, partitions=2)
    created.put(
        [Message("a", b"1", b"k", [("n", b"v")]), Message("b", b"2\n"), Message("a", b"3" * 100)],
        partition=0,
    )
    return created


@pytest.fixture
def group() -> str:
    """A name that no other test has."""
    return f"team {uuid.uuid4().hex[:8]}/x"


@pytest.fixture
def rejected(client: hqueue.Client, queue: hqueue.Queue, group: str) -> list[str]:
    """The IDs of the dead letters of a group that rejected all messages."""
    with Consumer(queue.name, group=group, client=client) as consumer:
        for message in take(3, consumer):
            consumer.reject(message, f"no use for {message.topic}")
    return [str(letter.id) for letter in queue.dead_letters.waiting(group=group)]


def listed(run: Run, *arguments: str) -> list[dict[str, object]]:
    ended = run("dead-letters", *arguments, "--json")
    assert ended.code == 0, ended.err
    return [*map(json.loads, ended.lines)]


@pytest.mark.in_memory_first
def test_a_group_s_are_listed_filtered_put_back_and_deleted(
    run: Run, client: hqueue.Client, queue: hqueue.Queue, group: str, rejected: list[str]
) -> None:
    name, of = queue.name, ("--group", group)
    letters = listed(run, name, *of)
    assert [(each["id"], each["group"], each["topic"]) for each in letters] == [
        (rejected[0], group, "a"), (rejected[1], group, "b"), (rejected[2], group, "a")
    ]  # fmt: skip
    assert (letters[0]["key"], letters[0]["headers"]) == ("k", [{"name": "n", "value": "v"}])
    assert [each["value"] for each in listed(run, name, *of, "--topic", "b")] == ["2\n"]
    assert len(listed(run, name, *of, "--reason", "FOR a")) == 2
    assert len(listed(run, name, *of, "--since", "1h ago", "-p", "0")) == 3
    assert listed(run, name, *of, "--until", "1h ago") == []
    assert listed(run, name, *of, "-p", "1") == []
    assert len(listed(run, name, *of, "-n", "2")) == 2

    one = ("-p", "0", "--redrive", rejected[0])
    assert run("dead-letters", name, *of, *one).err == "Redriven: 1.\n"
    again = run("dead-letters", name, *of, *one)
    assert again.code == 2
    assert "no such dead letter is waiting" in again.err
    unasked = run("dead-letters", name, *of, "-p", "0", "--delete", rejected[1])
    assert unasked.code == 2
    assert "give --yes to confirm" in unasked.err
    assert len(listed(run, name, *of)) == 2
    deleted = run("dead-letters", name, *of, "-p", "0", "--delete", rejected[1], "--yes")
    assert deleted.err == "Deleted: 1.\n"
    assert run("dead-letters", name, *of, "--redrive-all", "--topic", "b").err == "Redriven: 0.\n"
    assert run("dead-letters", name, *of, "--redrive-all").err == "Redriven: 1.\n"
    assert listed(run, name, *of) == []
    with Consumer(name, group=group, client=client) as consumer:
        assert [each.value for each in take(2, consumer)] == [b"1", b"3" * 100]


def test_one_is_shown_whole(run: Run, queue: hqueue.Queue, group: str, rejected: list[str]) -> None:
    ended = run("dead-letters", queue.name, "--group", group, "-p", "0", "--show", rejected[2])
    shown = dict(line.split("\t") for line in ended.lines)
    assert (shown["group"], shown["id"], shown["topic"]) == (group, rejected[2], "a")
    assert (shown["reason"], shown["value"]) == ("no use for a", "3" * 100)
    assert (shown["key"], shown["headers"]) == ("-", "-")


def test_everyone_s_say_whose_they_are(
    run: Run, queue: hqueue.Queue, group: str, rejected: list[str]
) -> None:
    (first, *_) = queue.scan()
    queue.dead_letters.put([DeadLetter(first, "s", "rejected", 1)])
    rows = [line.split("\t") for line in run("dead-letters", queue.name).lines]
    assert [(row[0], row[1]) for row in rows] == [("group", group)] * 3 + [("subscriber", "s")]
    assert rows[0][2:4] == ["0", rejected[0]]
    assert run("dead-letters", queue.name, "--delete-all", "-y").err == "Deleted: 4.\n"
    assert run("dead-letters", queue.name).lines == []


@pytest.mark.parametrize(
    "line",
    [
        "{} s --group g",
        "{} --group g --redrive 1-0",
        "{} --group g -p 0 --redrive 1-0 --delete 1-0",
        "{} --group g -p 0 --show 1-0 --redrive-all",
        "{} --group g --redrive-all --delete-all",
        "{} --redrive-all",
        "{} --group g -p 0 --show x",
        "{} --group g -p 2",
        "{} --group g --since yesterdayish",
        "{} --group g --since 2-0 --until 1-0",
        "{} a/b",
    ],
)
def test_wrong_usage(run: Run, queue: hqueue.Queue, line: str) -> None:
    ended = run("dead-letters", *line.format(queue.name).split())
    assert (ended.code, ended.out) == (2, b"")
    assert ended.err


def test_a_group_that_is_not_there(run: Run, queue: hqueue.Queue) -> None:
    ended = run("dead-letters", queue.name, "-g", "nobody")
    assert (ended.code, ended.out) == (1, b"")
    assert "there is no such group [group='nobody'" in ended.err
