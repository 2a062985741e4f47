"""``hqueue publish``, ``hubs`` and ``topics``, with a hub of the queue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

import hqueue
from tests.acceptance.commands import Run
from tests.support.backends import Backend
from tests.support.hubs import HubThread

pytestmark = pytest.mark.in_memory_first


@pytest.fixture
def queue(make_queue: Callable[..., hqueue.Queue]) -> hqueue.Queue:
    return make_queue(2)


@pytest.fixture
def hub(backend: Backend, queue: hqueue.Queue) -> Iterator[HubThread]:
    with backend.connect() as client, HubThread(client, queue.name) as running:
        yield running


def test_what_is_published_lies_where_its_topic_is_said_to_lie(
    run: Run, queue: hqueue.Queue, hub: HubThread
) -> None:
    published = run("publish", "t", "one", "two", "-q", queue.name, "--hubs", str(hub.address))
    assert published.code == 0, published.err
    found = run("publish", "a/b", "three", "-q", queue.name)
    ids = [*published.lines, *found.lines]
    assert {str(message.id): message.value for message in queue.scan()} == dict(
        zip(ids, (b"one", b"two", b"three"), strict=True)
    )
    given = ("--message-key", "k", "-H", "n=1", "-H", "n=2")
    assert run("publish", "t", "four", *given, "-q", queue.name).code == 0
    [four] = [message for message in queue.scan() if message.value == b"four"]
    assert (four.key, four.headers) == (b"k", (("n", b"1"), ("n", b"2")))
    [listed] = map(json.loads, run("hubs", queue.name, "--json").lines)
    assert listed["address"] == str(hub.address)
    topics = map(json.loads, run("topics", "list", queue.name, "--json").lines)
    assert {each["topic"]: each["ranges"] for each in topics} == {"t": 1, "a/b": 1}
    assert sorted(run("topics", "owners", queue.name).lines) == [
        f"a/b\t{hub.address}\tTrue",
        f"t\t{hub.address}\tTrue",
    ]
    [where] = map(json.loads, run("topics", "describe", queue.name, "t", "--json").lines)
    assert where["last"] is None
    assert where["epoch"] == 0
    assert hqueue.MessageID.parse(where["first"]) <= hqueue.MessageID.parse(ids[0])


def test_numbered_values_are_published_once_and_their_topic_is_moved_and_deleted(
    run: Run, queue: hqueue.Queue, hub: HubThread
) -> None:
    given = ["-q", queue.name, "--hubs", str(hub.address), "--publisher", "me", "--number"]
    first = run("publish", "t", "one", "two", *given, "1")
    again = run("publish", "t", "two", "three", *given, "2")
    assert (len(first.lines), len(again.lines)) == (2, 1)
    assert [message.value for message in queue.scan()] == [b"one", b"two", b"three"]
    moved = run("topics", "move", queue.name, "t", str(hub.address))
    assert moved.code == 0, moved.err
    nowhere = run("topics", "move", queue.name, "t", "nowhere:1")
    assert nowhere.code == 2
    assert "not available" in nowhere.err
    deleted = run("topics", "delete", queue.name, "t", "--yes")
    assert deleted.code == 0, deleted.err
    assert run("topics", "describe", queue.name, "t").code == 1
    assert run("topics", "delete", queue.name, "t", "--yes").code == 1
    nobody = run("publish", "t", "four", "-q", queue.name, "--number", "4")
    assert nobody.code == 2
    assert "name" in nobody.err


def test_a_topic_is_consumed_from_its_mark_on(
    run: Run, queue: hqueue.Queue, hub: HubThread
) -> None:
    at = ["--hubs", str(hub.address)]
    consume = ["topics", "consume", queue.name, "t", "-s", "me", *at, "--format", "raw"]
    missing = run(*consume, "--attach", "-n", "1")
    assert missing.code != 0
    assert "no such subscription" in missing.err
    begun = run(*consume, "--idle-ms", "1")
    assert (begun.code, begun.lines) == (0, [])
    run("publish", "t", "one", "two", "three", "-q", queue.name, *at)
    assert run(*consume, "-n", "2").lines == ["one", "two"]
    assert run(*consume, "-n", "1", "--attach").lines == ["three"]
    run("publish", "t", "four", "-q", queue.name, *at)
    [document] = map(json.loads, run(*consume[:-1], "json", "-n", "1").lines)
    assert document["topic"] == "t"
    ended = run("topics", "unsubscribe", queue.name, "t", "-s", "me")
    assert ended.code == 0, ended.err
    assert run("topics", "unsubscribe", queue.name, "t", "-s", "me").code != 0


def test_what_is_not_there_is_said(run: Run, queue: hqueue.Queue) -> None:
    assert run("topics", "describe", queue.name, "t").code == 1
    assert run("topics", "list", queue.name).out == b""
    nobody = run("publish", "t", "one", "-q", queue.name)
    assert nobody.code == 2
    assert "no hub of this queue is available" in nobody.err
    assert run("publish", "t", "one", "-q", queue.name, "--hubs", "nowhere").code == 2


def test_who_may_do_what_with_a_topic_is_said_by_its_rules(
    run: Run, queue: hqueue.Queue, backend: Backend
) -> None:
    with (
        backend.connect() as client,
        HubThread(client, queue.name, authorizer="rules", administrators="hqueue") as hub,
    ):
        at = ["--hubs", str(hub.address)]
        nothing = run("topics", "allow", queue.name, "t", *at)
        assert nothing.code == 2
        assert "no such topic" in nothing.err
        said = run("topics", "allow", queue.name, "t", "--publish", "a, b-*", "--manage", "", *at)
        assert said.code == 0, said.err
        assert said.lines == ["publish\ta, b-*", "subscribe\t*", "manage\t"]
        [rules] = map(json.loads, run("topics", "allow", queue.name, "t", "--json", *at).lines)
        assert rules == {"publish": ["a", "b-*"], "subscribe": ["*"], "manage": []}
        given = ["publish", "t", "one", "-q", queue.name, *at, "--publisher"]
        assert run(*given, "b-1").code == 0
        refused = run(*given, "c")
        assert refused.code == 1
        assert "the caller may not do this" in refused.err
        asked = run("topics", "allow", queue.name, "t", "--caller", "a", *at)
        assert "the caller may not do this" in asked.err
        wrong = run("topics", "allow", queue.name, "t", "--publish", "a b", *at)
        assert wrong.code == 2
        [kept] = map(json.loads, run("metadata", "get", queue.name, "t").lines[:1])
        assert kept["access"]["publish"] == ["a", "b-*"]


OTHER_STORE = {"HQUEUE_METADATA_STORE": "hbase"}


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("topics", "owners"),
        ("topics", "describe", "t"),
        ("check", "--ranges"),
        ("metadata", "list"),
        ("metadata", "export"),
    ],
    ids=" ".join,
)
def test_a_command_with_another_metadata_store_says_so_instead_of_seeing_nothing(
    run: Run, queue: hqueue.Queue, hub: HubThread, command: tuple[str, ...]
) -> None:
    assert run("publish", "t", "one", "-q", queue.name, "--hubs", str(hub.address)).code == 0
    at = 1 if command[0] == "check" else 2
    words = [*command[:at], queue.name, *command[at:]]
    wrong = run(*words, env=OTHER_STORE)
    assert (wrong.code, wrong.out) == (2, b"")
    assert "metadata_store" in wrong.err
    assert "in_force='zookeeper'" in wrong.err
    right = run(*words)
    assert right.code == 0, right.err


def test_a_hub_with_another_metadata_store_does_not_start(
    queue: hqueue.Queue, hub: HubThread, backend: Backend
) -> None:
    for store in ("hbase", "memory"):
        with (
            backend.connect(metadata_store=store) as client,
            pytest.raises(hqueue.SettingsError, match="metadata_store"),
            HubThread(client, queue.name),
        ):
            pass
    with backend.connect() as client, HubThread(client, queue.name) as second:
        assert second.address != hub.address
