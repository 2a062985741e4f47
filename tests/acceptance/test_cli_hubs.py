"""``hqueue publish``, ``hubs`` and ``topics``, with a hub of the queue."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue.net.endpoints import Met, meet
from tests.acceptance.commands import DEADLINE_S, Run, Running, Start, command
from tests.support.backends import Backend
from tests.support.certificates import Certificates
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_memory


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


def test_a_hub_is_told_from_other_servers(hub: HubThread) -> None:
    assert meet(hub.address, 5, Met.HUB) is Met.HUB


@pytest.mark.in_memory_first
def test_numbered_values_are_published_once_and_their_topic_is_moved_and_deleted(
    run: Run, queue: hqueue.Queue, hub: HubThread
) -> None:
    given = ["-q", queue.name, "--hubs", str(hub.address), "--publisher", "me", "--sequence-number"]
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
    nobody = run("publish", "t", "four", "-q", queue.name, "--sequence-number", "4")
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


def test_the_lag_of_each_subscription_of_a_topic_is_listed(
    run: Run, queue: hqueue.Queue, hub: HubThread
) -> None:
    at = ["--hubs", str(hub.address)]
    consume = ["topics", "consume", queue.name, "t", *at, "--format", "raw", "-s"]
    for subscriber in ("first", "second"):
        run(*consume, subscriber, "--idle-ms", "1")
    run("publish", "t", "one", "two", "three", "-q", queue.name, *at)
    run("publish", "u", "other", "another", "-q", queue.name, *at)
    run(*consume, "second", "-n", "2")
    lags = run("topics", "subscriptions", queue.name, "t", "--json")
    assert lags.code == 0, lags.err
    first, second = map(json.loads, lags.lines)
    assert (first["subscriber"], first["lag"], first["exact"]) == ("first", 3, True)
    assert (second["subscriber"], second["lag"], second["exact"]) == ("second", 1, True)
    assert first["age_ms"] >= second["age_ms"] >= 0
    assert hqueue.MessageID.parse(second["consumed"]) in {each.id for each in queue.scan()}
    cells = [line.split("\t") for line in run("topics", "subscriptions", queue.name, "t").lines]
    assert [(row[0], row[2]) for row in cells] == [("first", "3"), ("second", "1")]
    assert run("topics", "subscriptions", queue.name, "u").out == b""
    assert run("topics", "subscriptions", queue.name, "nosuch").code == 1
    unknown = run("topics", "subscriptions", "nosuch", "t")
    assert unknown.code == 1
    assert "nosuch" in unknown.err


def test_what_is_not_there_is_said(run: Run, queue: hqueue.Queue) -> None:
    assert run("topics", "describe", queue.name, "t").code == 1
    assert run("topics", "list", queue.name).out == b""
    nobody = run("publish", "t", "one", "-q", queue.name)
    assert nobody.code == 3
    assert "no hub of this queue is available" in nobody.err
    assert run("publish", "t", "one", "-q", queue.name, "--hubs", "nowhere").code == 2


def test_who_may_do_what_with_a_topic_is_said_by_its_acl(
    run: Run, queue: hqueue.Queue, backend: Backend
) -> None:
    with (
        backend.connect() as client,
        HubThread(client, queue.name, authorizer="acl", administrators="hqueue") as hub,
    ):
        at = ["--hubs", str(hub.address)]
        nothing = run("topics", "acl", queue.name, "t", *at)
        assert nothing.code == 2
        assert "no such topic" in nothing.err
        said = run("topics", "acl", queue.name, "t", "--publish", "a, b-*", "--manage", "", *at)
        assert said.code == 0, said.err
        assert said.lines == ["publish\ta, b-*", "subscribe\t*", "manage\t"]
        [acl] = map(json.loads, run("topics", "acl", queue.name, "t", "--json", *at).lines)
        assert acl == {"publish": ["a", "b-*"], "subscribe": ["*"], "manage": []}
        given = ["publish", "t", "one", "-q", queue.name, *at, "--publisher"]
        assert run(*given, "b-1").code == 0
        refused = run(*given, "c")
        assert refused.code == 1
        assert "the caller is not allowed to do this" in refused.err
        asked = run("topics", "acl", queue.name, "t", "--caller", "a", *at)
        assert "the caller is not allowed to do this" in asked.err
        wrong = run("topics", "acl", queue.name, "t", "--publish", "a b", *at)
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
        ("verify", "--ranges"),
        ("metadata", "list"),
        ("metadata", "export"),
    ],
    ids=" ".join,
)
def test_a_command_with_another_metadata_store_says_so_instead_of_seeing_nothing(
    run: Run, queue: hqueue.Queue, hub: HubThread, command: tuple[str, ...]
) -> None:
    assert run("publish", "t", "one", "-q", queue.name, "--hubs", str(hub.address)).code == 0
    at = 1 if command[0] == "verify" else 2
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


def test_lines_of_files_and_stdin_are_published_in_their_order_with_keys_and_headers(
    run: Run, queue: hqueue.Queue, hub: HubThread, tmp_path: Path
) -> None:
    Path(tmp_path, "lines").write_bytes(b"a=1\na=2\n")
    given = ("-q", queue.name, "--hubs", str(hub.address), "-K", "=", "-H", "n=v", "--print-ids")
    files = ("-f", str(tmp_path / "lines"), "-f", "-")
    published = run("publish", "t", *given, *files, stdin=b"b=3\n")
    assert published.code == 0, published.err
    assert published.err.startswith("3 messages (")
    assert f") published to topic t of {queue.name} in " in published.err
    came = [*queue.scan_topic("t")]
    assert [str(message.id) for message in came] == published.lines
    assert [(message.key, message.value) for message in came] == [
        *((b"a", b"1"), (b"a", b"2"), (b"b", b"3"))
    ]
    assert {message.headers for message in came} == {(("n", b"v"),)}
    quiet = run("publish", "t", "--quiet", *given[:4], "--message-key", "k", stdin=b"last")
    assert (quiet.code, quiet.out, quiet.err) == (0, b"", "")
    *_, last = queue.scan_topic("t")
    assert (last.key, last.value) == (b"k", b"last")


def test_what_a_scan_wrote_is_published_with_all_that_it_has_and_none_of_the_system_s_own(
    run: Run, queue: hqueue.Queue, hub: HubThread
) -> None:
    given = ("-q", queue.name, "--hubs", str(hub.address), "--format")
    documents = (
        b'{"partition":1,"id":"5-0","topic":"u","key":"k","headers":[{"name":"n","value":"v"}],'
        b'"value":"one"}\n{"value":"two"}\n{"id":"6-0","topic":"hqueue.x","value":"three"}\n'
    )
    copied = run("publish", "t", *given, "json", stdin=documents)
    assert copied.code == 0, copied.err
    assert "2 messages" in copied.err
    assert "Left out: 1 of topics that begin with 'hqueue.'" in copied.err
    [one] = queue.scan_topic("u")
    assert (one.key, one.headers, one.value) == (b"k", (("n", b"v"),), b"one")
    assert [each.value for each in queue.scan_topic("t")] == [b"two"]
    framed = run("publish", "t", *given, "length-prefixed", stdin=b"\0\0\0\3a\nb")
    assert framed.code == 0, framed.err
    assert [each.value for each in queue.scan_topic("t")] == [b"two", b"a\nb"]


def test_values_are_published_all_or_none_and_what_is_there_already_is_said(
    run: Run, queue: hqueue.Queue, hub: HubThread
) -> None:
    given = ("-q", queue.name, "--hubs", str(hub.address))
    refused = run("publish", "t", "--format", "json", '{"value":"a"}', '{"valu":"b"}', *given)
    assert (refused.code, refused.out) == (2, b"")
    mixed = run(
        "publish", "t", "--format", "json", '{"value":"a"}', '{"topic":"u","value":"b"}', *given
    )
    assert (mixed.code, mixed.out) == (2, b"")
    assert [*queue.scan()] == []
    once = ("publish", "t", "--publisher", "me", "--sequence-number")
    assert "2 messages (6 B)" in run(*once, "1", "one", "two", *given).err
    again = run(*once, "2", "two", "three", *given)
    assert "1 message (5 B) published" in again.err
    assert "The first 1 were there already." in again.err


def test_a_stream_that_fails_on_its_way_says_what_was_published_and_what_was_not(
    run: Run, queue: hqueue.Queue, backend: Backend
) -> None:
    with (
        backend.connect() as client,
        HubThread(client, queue.name, authorizer="acl", administrators="hqueue") as hub,
    ):
        given = ("-q", queue.name, "--hubs", str(hub.address))
        broken = run("publish", "t", *given, "-K", ":", stdin=b"a:1\nb:2\nno key\n")
        assert broken.code == 2
        assert broken.err.startswith("2 messages (4 B) published to topic t")
        assert "a line has no key separator" in broken.err
        assert "line=3" in broken.err
        assert run("topics", "acl", queue.name, "t", "--publish", "me").code == 0
        refused = run("publish", "t", *given, "--publisher", "other", stdin=b"3\n4\n")
        assert refused.code == 1
        assert "0 messages (0 B) published" in refused.err
        assert "2 were refused, 0 may be published or may be not." in refused.err
        assert "The first 0 messages of the input are published." in refused.err
        assert "the caller is not allowed to do this" in refused.err
    away = run("--operation-timeout-ms", "2s", "publish", "t", *given, stdin=b"5\n")
    assert away.code != 0
    assert [each.value for each in queue.scan()] == [b"1", b"2"]


@pytest.mark.parametrize(
    "wrong",
    [
        ("v", "-f", "-"),
        ("v", "-K", ":"),
        ("v", "--format", "length-prefixed"),
        ("-f", "-", "--sequence-number", "1", "--publisher", "me"),
        ("-f", "/no/such/file"),
        ("-K", ":", "--message-key", "k"),
        ("--format", "json", "-H", "n=v"),
    ],
    ids=" ".join,
)
def test_what_does_not_go_together_publishes_nothing(
    run: Run, queue: hqueue.Queue, hub: HubThread, wrong: tuple[str, ...]
) -> None:
    ended = run("publish", "t", *wrong, "-q", queue.name, "--hubs", str(hub.address), stdin=b"x")
    assert (ended.code, ended.out) == (2, b""), ended.err
    assert [*queue.scan()] == []


def test_a_publish_says_what_was_published_whatever_its_streams_are_and_when_it_is_interrupted(
    queue: hqueue.Queue, hub: HubThread, process_environment: dict[str, str]
) -> None:
    given = ("-q", queue.name, "--hubs", str(hub.address))

    def in_shell(line: str) -> tuple[int, str]:
        words = " ".join([*command(), "publish", "t", *given])
        done = subprocess.run(
            ["bash", "-c", f"{words} {line}"],
            env=process_environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert b"Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stderr.decode()

    for line, expected in (
        ("--quiet one >/dev/full", 0),  # Nobody asked for the ID.
        ("--quiet --print-ids -f <(echo two) >&-", 1),
    ):
        code, err = in_shell(line)
        assert code == expected
        assert f"1 message (3 B) published to topic t of {queue.name}" in err
        assert err.count("can't write to stdout") == expected
    code, err = in_shell("<&-")
    assert code == 2
    assert err.startswith("hqueue: error: stdin can't be read"), err
    running = Running(("publish", "t", *given, "--print-ids"), process_environment)
    try:
        running.write(b"three\n")
        running.line()
        running.interrupt()
        ended = running.end()
    finally:
        running.kill()
    assert ended.code == 130
    assert "1 message (5 B) published" in ended.err
    assert [each.value for each in queue.scan_topic("t")] == [b"one", b"two", b"three"]


@pytest.mark.in_memory_first
def test_a_pipe_is_published_through_a_hub_that_is_a_process(
    start: Start, run: Run, opened: hqueue.Queue, name: str
) -> None:
    start("hub", name, "--host", "127.0.0.1", "--port", "0", "--metrics-port", "0")
    wait_for(lambda: run("hubs", name).lines, "the hub is available", timeout_s=DEADLINE_S)
    lines = b"".join(b"%d:value %d\n" % (number % 7, number) for number in range(5_000))
    published = run("publish", "t", "-q", name, "-K", ":", "--print-ids", stdin=lines)
    assert published.code == 0, published.err
    assert "5,000 messages" in published.err
    came = [*opened.scan_topic("t")]
    assert [str(message.id) for message in came] == published.lines
    assert [b"%s:%s\n" % (message.key or b"", message.value) for message in came] == [
        *lines.splitlines(keepends=True)
    ]


def test_commands_of_hubs_with_tls_take_their_certificates_from_the_environment(
    run: Run, backend: Backend, queue: hqueue.Queue, certificates: Certificates
) -> None:
    def environment(name: str) -> dict[str, str]:
        return {f"HQUEUE_{key.upper()}": str(value) for key, value in certificates.of(name).items()}

    given = ("-q", queue.name)
    client = backend.connect(**certificates.of("hub"))
    with client, HubThread(client, queue.name, authorizer="acl", creators="loader"):
        published = run("publish", "t", "one", *given, env=environment("loader"))
        assert published.code == 0, published.err
        ops = run("topics", "acl", queue.name, "new", "--publish", "ops", env=environment("ops"))
        assert ops.code == 1
        assert "not allowed" in ops.err
        plain = run("publish", "t", "two", *given, "--operation-timeout-ms", "2s")
        assert plain.code != 0
        broken = {**environment("loader"), "HQUEUE_TLS_CERTIFICATE": "/nowhere.pem"}
        wrong = run("publish", "t", "three", *given, env=broken)
        assert wrong.code == 2
        assert "tls_certificate can't be used" in wrong.err
    assert [message.value for message in queue.scan()] == [b"one"]
