"""The shell: the syntax of Alibaba's HQueue, scripts from a pipe, and a person at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import hqueue
from tests.acceptance.commands import Run, command

pytestmark = pytest.mark.in_memory

WAIT_S = 60.0


@pytest.mark.in_memory_first
def test_the_commands_of_alibabas_hqueue_work_from_a_pipe(run: Run, name: str) -> None:
    script = f"""
    hqueue> create ‘{name}-a′, 32, 86400
    hqueue> create ‘{name}-b′, 8, 86400, {{‘hbase.hqueue.partitionsPerRegion’ => ’4′, \
‘hbase.hstore.compaction.min’ => ’16′, ‘hbase.hstore.compaction.max’ => ’32′}}
    describe '{name}-b' --json
    put '{name}-a', 'crawler', 'http://www.360test.com'
    scan '{name}-a', {{'format' => 'raw'}}
    hqueue(main):013:0> truncate_queue '{name}-a'
    scan '{name}-a'
    disable '{name}-a'
    enable '{name}-a'
    disable '{name}-a'
    delete '{name}-a'
    """
    ended = run("shell", stdin=script.encode())
    assert ended.code == 0, ended.err
    described, value = ended.lines
    assert value == "http://www.360test.com"
    found = json.loads(described)
    assert (found["partitions"], found["ttl_seconds"]) == (8, 86_400)
    assert found["attributes"]["partitions_per_region"] == 4
    assert found["attributes"]["compaction_files_min"] == 16
    assert found["attributes"]["compaction_files_max"] == 32
    left = run("list").out.decode()
    assert f"{name}-a" not in left
    assert f"{name}-b" in left


def test_the_plain_syntax_and_comments_work_as_well(run: Run, name: str) -> None:
    script = (
        f"# a comment\n\nhqueue create {name} -p 2 --ttl 1d\nput {name} -t 'a b' 'x y'\nexit\nno"
    )
    ended = run("shell", stdin=script.encode())
    assert ended.code == 0
    assert run("scan", name, "--topic", "a b", "--format", "raw").out == b"x y\n"


def test_a_key_and_headers_are_said_in_either_syntax(run: Run, name: str) -> None:
    script = f"""
    create '{name}', 2, 86400
    put '{name}', 't', 'a', {{'message_key' => 'k', 'header' => 'n=1', 'header' => 'n=2'}}
    put {name} -t t --message-key k -H 'n=3' b
    scan '{name}', {{'format' => 'json'}}
    scan {name} --print-key --print-headers
    """
    ended = run("shell", stdin=script.encode())
    assert ended.code == 0, ended.err
    first, second = map(json.loads, ended.lines[:2])
    assert (first["key"], second["key"]) == ("k", "k")
    assert [header["value"] for header in first["headers"]] == ["1", "2"]
    shown = [line.split("\t")[4:] for line in ended.lines[2:]]
    assert shown == [["k", "n=1,n=2", "a"], ["k", "n=3", "b"]]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("bogus", 2),
        ("create 'q', 3", 2),
        ("create 'q', x, 86400", 2),
        ("create 'q', 3, 86400, {'a' =>", 2),
        ("create 'q', 3, 86400, {'hbase.nosuch' => '1'}", 2),
        ("disable 'cli-no-such-queue'", 1),
        ("put q -t t", 2),
        ("shell", 2),
        ("--gateways x list", 2),
        ("scan 'unclosed", 2),
    ],
)
def test_a_script_ends_at_its_first_error_with_its_exit_code(
    run: Run, client: hqueue.Client, shared: str, line: str, code: int
) -> None:
    topic = uuid.uuid4().hex
    script = f"put '{shared}', '{topic}', 'before'\n{line}\nput '{shared}', '{topic}', 'after'\n"
    ended = run("shell", stdin=script.encode())
    assert ended.code == code
    assert f"hqueue: line 2 failed: {line}" in ended.err
    with client.queue(shared) as queue:
        assert [message.value for message in queue.scan(topics=[topic])] == [b"before"]


def test_a_script_that_is_not_text_is_told(run: Run) -> None:
    ended = run("shell", stdin=b"\xff\xfe\n")
    assert ended.code == 2
    assert "not UTF-8" in ended.err


def test_help_shows_the_toolkits_way_to_write_a_command(run: Run) -> None:
    ended = run("shell", stdin=b"help\nhelp create\n")
    assert ended.code == 0
    text = ended.out.decode()
    assert "create 'queue_name', partition_count, ttl, [configuration dictionary]" in text
    assert all(verb in text for verb in ("truncate", "scan", "tail", "local"))


class Terminal:
    """A person's terminal, with a shell in it."""

    def __init__(self, environment: dict[str, str]) -> None:
        arguments = [*command(), "shell"]
        self._shown = b""
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            try:
                os.execvpe(arguments[0], arguments, {**environment, "TERM": "xterm"})
            finally:
                os._exit(127)

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def until(self, text: str) -> str:
        """What is shown from now on, up to this text."""
        deadline_s = time.monotonic() + WAIT_S
        while text.encode() not in self._shown:
            left_s = max(0.0, deadline_s - time.monotonic())
            assert select.select([self._descriptor], [], [], left_s)[0], (text, self._shown)
            data = os.read(self._descriptor, 65_536)
            self._shown += data
            if b"\x1b[6n" in data:  # It asks where the cursor is; a terminal tells.
                os.write(self._descriptor, b"\x1b[1;1R")
        before, _, self._shown = self._shown.partition(text.encode())
        return before.decode(errors="replace")

    def prompt(self) -> None:
        """Wait for the shell to take the next line: it takes the terminal over, and prompts."""
        self.until("\x1b[?2004h")
        self.until("hqueue>")

    def end(self) -> int:
        """Wait for its end; the exit code."""
        while select.select([self._descriptor], [], [], WAIT_S)[0]:
            try:
                if not os.read(self._descriptor, 65_536):
                    break
            except OSError:  # Linux says so when the other side has closed.
                break
        else:
            pytest.fail("the shell did not end")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(environment: dict[str, str]) -> Iterator[Terminal]:
    opened = Terminal(environment)
    yield opened
    try:
        os.kill(opened.pid, 9)
        os.waitpid(opened.pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def test_a_person_gets_completion_questions_and_a_history(
    terminal: Terminal, environment: dict[str, str], client: hqueue.Client, name: str
) -> None:
    completed = f"{name}-quux"
    with client.create_queue(completed, partitions=2) as queue:
        queue.put(hqueue.Message("t", b"seen"))
    terminal.prompt()
    terminal.type("desc\t")
    terminal.until("ribe")
    terminal.type(f" {name}\t")
    terminal.until("quux")
    terminal.type("\r")
    terminal.until("partitions")
    terminal.prompt()

    terminal.type("disable 'cli-no-such-queue'\r")
    terminal.until("there is no such queue")
    terminal.prompt()

    terminal.type(f"delete {completed}\r")
    terminal.until("[y/N]")
    terminal.type("n\r")
    terminal.until("Nothing was done")
    terminal.prompt()

    terminal.type(f"tail {completed} --follow\r")
    terminal.until("seen")
    terminal.type("\x03")
    terminal.prompt()

    terminal.type("\x1b[A\x1b[A\x1b[A")
    terminal.until("disable 'cli-no-such-queue'")
    terminal.type("\x03")
    terminal.prompt()
    terminal.type("\x04")
    assert terminal.end() == 0

    history = Path(environment["XDG_STATE_HOME"], "hqueue", "shell_history").read_text()
    assert f"+describe {completed}" in history
    assert "+disable 'cli-no-such-queue'" in history
