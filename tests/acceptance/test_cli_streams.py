"""A command's outcome is the same whatever its standard streams are."""

from __future__ import annotations

import shlex
import subprocess

import pytest

import hqueue
from tests.acceptance.commands import DEADLINE_S, Ended, command

pytestmark = [pytest.mark.usefixtures("opened"), pytest.mark.in_memory]


def _in_shell(line: str, environment: dict[str, str]) -> Ended:
    """Run a line of a shell's, where ``hqueue`` is the installed command."""
    done = subprocess.run(
        ["bash", "-c", f'hq() {{ {shlex.join(command())} "$@"; }}; {line}'],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    err = done.stderr.decode()
    assert "Traceback" not in err, err
    assert "Exception ignored" not in err, err
    return Ended(done.returncode, done.stdout, err)


@pytest.mark.in_memory_first
@pytest.mark.parametrize(
    "closed", [">&- <&-", ">&- 2>&- <&-", "2>/dev/full", ">/dev/full 2>/dev/full"]
)
def test_a_put_that_succeeded_ends_with_0_whatever_is_closed(
    client: hqueue.Client, process_environment: dict[str, str], name: str, closed: str
) -> None:
    put = _in_shell(f"hq put {name} -t t value {closed}", process_environment)
    assert (put.code, put.out) == (0, b""), put.err
    assert [each.value for each in client.queue(name).scan()] == [b"value"]


def test_what_a_closed_stream_was_needed_for_is_an_error(
    process_environment: dict[str, str], name: str
) -> None:
    scanned = _in_shell("hq list >&-", process_environment)
    assert scanned.code == 1
    assert scanned.err.startswith("hqueue: error: can't write to stdout")
    for line in (f"put {name} -t t", "shell", "metadata import -"):
        read = _in_shell(f"hq {line} <&-", process_environment)
        assert read.code == 2
        assert read.err.startswith("hqueue: error: stdin can't be read"), read.err


@pytest.mark.parametrize(
    ("given", "stdout"), [("one two", ">/dev/full"), ("-f <(echo one; echo two)", ">&-")]
)
def test_what_was_written_is_said_though_its_ids_can_not_be_printed(
    client: hqueue.Client, process_environment: dict[str, str], name: str, given: str, stdout: str
) -> None:
    line = f"hq put {name} -t t -q --print-ids {given} {stdout}"
    put = _in_shell(line, process_environment)
    assert put.code == 1
    assert f"2 messages (6 B) written to {name}" in put.err
    assert put.err.count("can't write to stdout") == 1
    assert len([*client.queue(name).scan()]) == 2
