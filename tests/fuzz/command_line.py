"""The command line: arguments, options and input of any kind, against a gateway that may lie."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import typer
from hypothesis import strategies as st

from hqueue.cli.app import app
from hqueue.cli.exits import ExitCode
from hqueue.cli.formats import Format
from hqueue.cli.framing import Framing
from hqueue.errors import LocalServerError
from hqueue.local.logs import read_lines
from hqueue.runtime.loop import background
from hqueue.settings.attributes import ATTRIBUTES
from tests.support.command_line import run_here

from .damage import Damage, damaged, damages
from .gateway import QUEUE, Spoil
from .log import Table, tables
from .target import Target
from .texts import damaged_texts, framed, texts
from .wire import gateway, plans, settings_of

__all__ = ["TARGETS"]

FILE = "input"
"""A file in the folder in which each command runs."""

NEVER = {"--install-completion", "--show-completion"}
"""They write to the files of the user who runs this."""


def _words() -> Iterator[str]:
    """Every command and every option that there is."""
    groups: list[Any] = [typer.main.get_command(app)]
    while groups:
        group = groups.pop()
        for name, command in getattr(group, "commands", {}).items():
            yield name
            groups.append(command)
        for parameter in group.params:
            yield from (option for option in parameter.opts if option not in NEVER)


WORDS = sorted(set(_words()))
COMMANDS = [*typer.main.get_command(app).commands, "local status", "local logs"]  # type: ignore[attr-defined]
VALUES = (
    *(QUEUE.decode(), "0", "1", "-1", "2", "65536", "99999999999999999999", "1.5", "", "-", "--"),
    *(FILE, "missing", ".", "*", "[", "t", "forever", "1d", "standalone", "buffered", "now"),
    *(f"{name}=16" for name in ATTRIBUTES),
    *(f"{one.toolkit_name}=GZ" for one in ATTRIBUTES.values()),
    *(chosen.value for chosen in (*Format, *Framing)),
)
words = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(VALUES),
    st.sampled_from(VALUES),
    texts,
    st.builds("{}={}".format, st.sampled_from(WORDS), st.sampled_from(VALUES) | texts),
)
usual = st.sampled_from(
    [
        ["scan", "q"],
        ["scan", "q", "--merge-sorted", "--format", "json"],
        ["scan", "q", "-f", "--idle-ms", "1"],
        ["tail", "q"],
        ["tail", "q", "--follow", "--idle-ms", "1"],
        ["verify", "q", "--json"],
        ["put", "q", "-t", "t", "--print-ids"],
        ["put", "q", "-t", "t", "-f", FILE, "--format", "length-prefixed"],
        ["put", "q", "-t", "t", "value"],
        ["put", "q", "-t", "t", "--message-key", "k", "-H", "name=value", "value"],
        ["put", "q", "-t", "t", "-f", FILE, "--format", "json"],
        ["put", "q", "-t", "t", "-f", FILE, "--key-separator", ":"],
        ["scan", "q", "--print-key", "--print-headers"],
        ["describe", "q"],
        ["describe", "q", "--json"],
        ["list", "--json"],
        ["locations", "q"],
        ["create", "new", "-p", "2"],
        ["alter", "q", "--ttl", "1d"],
        ["truncate", "q", "--yes"],
        ["delete", "q", "--yes"],
        ["shell"],
    ]
)
"""Calls that get as far as the gateway."""

argument_lists = st.one_of(
    st.tuples(st.sampled_from(COMMANDS).map(str.split), st.lists(words, max_size=5)),
    st.tuples(usual, st.lists(words, max_size=2)),
    st.tuples(usual, st.just([])),
).map(lambda drawn: [*drawn[0], *drawn[1]])
scripts = st.lists(
    damaged_texts("line") | argument_lists.map(" ".join), min_size=1, max_size=4
).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogateescape"))


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of the command.

    Args:
        arguments: behind the name of the program.
        stdin: what comes in, and what is in the file that can be named.
        done: damage to that.
        wire: transport and protocol.
        table: what the queue holds.
        plan: which of the gateway's answers are spoiled.
    """

    arguments: Sequence[str]
    stdin: bytes
    done: Sequence[Damage]
    wire: tuple[str, str]
    table: Table
    plan: Mapping[int, Spoil]


wires = st.sampled_from([("buffered", "binary"), ("framed", "compact")])
calls = st.builds(
    Call,
    argument_lists,
    framed | scripts,
    damages(2),
    wires,
    tables,
    st.just({}) | plans,
)


def _refuse(*_: object, **__: object) -> None:
    raise LocalServerError("no server is started here")


def _call(call: Call) -> None:
    """Every call ends with one of the exit codes, and with a message instead of a traceback."""
    served = gateway(*call.wire)
    served.begin({row.key: row for row in call.table.rows()}, call.plan)
    with tempfile.TemporaryDirectory(prefix="hqueue-fuzz-") as folder:
        Path(folder, FILE).write_bytes(damaged(call.stdin, call.done))
        code, said, failed = _run(call, folder, served.address)
    assert code in set(ExitCode), f"exit code {code}"
    assert "Traceback" not in said, said
    assert not failed, failed


def _run(call: Call, folder: str, address: object) -> tuple[int, str, list[BaseException]]:
    settings = settings_of(gateway(*call.wire))
    environ = {
        "HOME": folder,
        "PATH": os.environ.get("PATH", ""),
        "HQUEUE_LOCAL_HOME": folder,
        "HQUEUE_GATEWAYS": str(address),
        "HQUEUE_TRANSPORT": settings.transport,
        "HQUEUE_PROTOCOL": settings.protocol,
        "HQUEUE_REQUEST_TIMEOUT_MS": str(settings.request_timeout_ms),
        "HQUEUE_OPERATION_TIMEOUT_MS": str(settings.operation_timeout_ms),
        "HQUEUE_GATEWAY_RETRY_MS": "1",
    }
    failed: list[BaseException] = []
    background()  # That thread stays.
    others = set(threading.enumerate())  # Those of other tests may live on.
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        stack.callback(os.chdir, os.getcwd())
        os.chdir(folder)
        for what in ("start", "stop", "reset"):
            enter(mock.patch(f"hqueue.local.{what}", _refuse))
        enter(mock.patch("hqueue.cli.demo.command.start_server", _refuse))
        enter(mock.patch("hqueue.local.logs.follow_lines", read_lines))
        enter(mock.patch("hqueue.hbase.table_procedures.TRUNCATE_PAUSE_MS", 1))
        enter(mock.patch("hqueue.consume.follow.PAUSE_MS_MAX", 2.0))
        enter(mock.patch("threading.excepthook", lambda args: failed.append(args.exc_value)))
        stdin = Path(folder, FILE).read_bytes()
        code, _, said = run_here(call.arguments, stdin, environ)
    for thread in set(threading.enumerate()) - others:
        if thread.name.startswith("hqueue-"):
            thread.join(5)
    return code, said, failed


TARGETS: list[Target[Any]] = [Target("command-line", calls, _call)]
