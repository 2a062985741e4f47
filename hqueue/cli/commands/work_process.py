"""Runs a process for a message, and decides by the process's end what becomes of the message."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hqueue.errors import InvalidInputError
from hqueue.settings.limits import REASON_LENGTH_MAX
from hqueue.sharing.acquired_message import AcquiredMessage

__all__ = [
    "REJECTS",
    "Ran",
    "Retries",
    "Verdict",
    "arguments_for",
    "environment_for",
    "run",
    "verdict",
]

REJECTS = 65
"""The exit code that rejects a message: EX_DATAERR of sysexits.h."""
SAID_MAX = 4_096
ENDS_WITHIN_S = 5.0
"""How long a process has to end after SIGTERM."""
STDERR_ENDS_WITHIN_S = 1.0
"""How long stderr is read after the process ended: a process that it left behind may
keep it open."""


class Ran(NamedTuple):
    """A process that has ended."""

    code: int | None
    """The exit code, or the negative number of a signal; None if the process took too long."""
    said: str
    """The end of the process's stderr; why no process could be started, if none was."""
    started: bool = True


class Retries(NamedTuple):
    """When a message is tried again."""

    deliveries_max: int
    pause_ms: int
    """The first pause. Each further one is four times as long."""
    pause_ms_max: int = 3_600_000

    def pause_after_ms(self, deliveries: int) -> int:
        """How long a message waits after it failed at this delivery."""
        return int(min(self.pause_ms_max, self.pause_ms * 4 ** min(deliveries - 1, 30)))


class Verdict(NamedTuple):
    """What becomes of a message."""

    done: bool
    again_in_ms: int | None = None
    """How long the message waits for its next delivery; None if it is not delivered again."""
    reason: str = ""
    """Why the message is not done."""
    exhausted: bool = False
    """Whether the message failed as often as it may."""


def verdict(ran: Ran, deliveries: int, retries: Retries) -> Verdict:
    """Decide by the end of a process what becomes of its message.

    Args:
        ran: the process that has ended.
        deliveries: how often the message was delivered, this time included.
        retries: when messages are tried again.
    """
    if ran.code == 0:
        return Verdict(done=True)
    if ran.code == REJECTS:
        return Verdict(done=False, reason=_reason(ran))
    if deliveries >= retries.deliveries_max:
        times = "once" if deliveries == 1 else f"{deliveries} times"
        return Verdict(done=False, reason=_reason(ran, f"failed {times}: "), exhausted=True)
    pause_ms = retries.pause_after_ms(deliveries)
    return Verdict(done=False, again_in_ms=pause_ms, reason=_reason(ran))


def _reason(ran: Ran, before: str = "") -> str:
    """Why a message is not done, with the end of what the process said."""
    if not ran.started:
        ended = "the command was not run"
    elif ran.code is None:
        ended = "took too long"
    elif ran.code < 0:
        ended = f"ended by signal {-ran.code}"
    else:
        ended = f"exit code {ran.code}"
    ended = before + ended
    said = ran.said.strip()[-(REASON_LENGTH_MAX - len(ended) - 2) :]
    return f"{ended}: {said}" if said else ended


def arguments_for(command: Sequence[str], message: AcquiredMessage) -> list[str]:
    """A command's arguments for a message: the value replaces ``{}`` in each but the first.

    Raises:
        ValueError: the value can't be an argument.
    """
    program, *rest = command
    if not any("{}" in each for each in rest):
        return [program, *rest]
    if b"\0" in message.value:
        raise ValueError("the value has a zero byte: it can't be an argument")
    value = os.fsdecode(message.value)
    return [program, *(each.replace("{}", value) for each in rest)]


def environment_for(message: AcquiredMessage) -> dict[str, str]:
    """The environment variables that describe a message to its process. A topic, a key or a header
    with a zero byte is left out, since no variable can have one.
    """
    found = {
        "MESSAGE_QUEUE": message.queue,
        "MESSAGE_PARTITION": str(message.partition),
        "MESSAGE_ID": str(message.id),
        "MESSAGE_TIMESTAMP_MS": str(message.timestamp),
        "MESSAGE_DELIVERIES": str(message.deliveries),
    }
    if "\0" not in message.topic:
        found["MESSAGE_TOPIC"] = message.topic
    if message.key is not None and b"\0" not in message.key:
        found["MESSAGE_KEY"] = os.fsdecode(message.key)
    for name, value in message.headers:
        if b"\0" not in value:
            found[f"MESSAGE_HEADER_{_variable(name)}"] = os.fsdecode(value)
    return found


def _variable(name: str) -> str:
    return re.sub("[^A-Z0-9]", "_", name.upper())


async def run(command: Sequence[str], message: AcquiredMessage, timeout_s: float | None) -> Ran:
    """Run a command for a message, and wait until it ends. The command runs in a process group of
    its own, without a shell. A cancelled call ends the group.

    Args:
        command: the program and its arguments.
        message: the message. Its value is the process's stdin, and replaces ``{}`` in arguments.
        timeout_s: after how many seconds the process is ended; None for never.

    Raises:
        InvalidInputError: the command can't be run for any message.
    """
    outside = {k: v for k, v in os.environ.items() if not k.startswith("MESSAGE_")}
    try:
        arguments = arguments_for(command, message)
        environment = outside | environment_for(message)
        process, stderr = await _started(arguments, environment, message.value)
    except ValueError as exc:
        return Ran(REJECTS, str(exc), started=False)
    except OSError as exc:
        if exc.errno == errno.E2BIG:
            problem = "the message is too large for the arguments or the environment"
            return Ran(REJECTS, problem, started=False)
        raise InvalidInputError(
            "the command can't be run", command=command[0], problem=str(exc)
        ) from exc
    said = bytearray()
    reading = asyncio.ensure_future(_read(stderr.reader, said))
    code: int | None = None
    try:
        try:
            with contextlib.suppress(asyncio.TimeoutError):
                code = await asyncio.wait_for(process.wait(), timeout_s)
        finally:
            if code is None:
                await _end(process)
        await asyncio.wait([reading], timeout=STDERR_ENDS_WITHIN_S)
    finally:
        reading.cancel()
        stderr.transport.close()
    return Ran(code, said.decode(errors="replace"))


class _Stderr(NamedTuple):
    """The reading end of a pipe that is a process's stderr. asyncio's own pipes won't do: it waits
    for a process until they are closed, also by processes that this one has left behind.
    """

    reader: asyncio.StreamReader
    transport: asyncio.BaseTransport


async def _started(
    arguments: Sequence[str], environment: Mapping[str, str], value: bytes
) -> tuple[asyncio.subprocess.Process, _Stderr]:
    reading, writing = os.pipe()
    try:
        stderr = await _opened(reading)
        try:
            process = await _start(arguments, environment, value, writing)
        except BaseException:
            stderr.transport.close()
            raise
        return process, stderr
    finally:
        os.close(writing)


async def _opened(descriptor: int) -> _Stderr:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    return _Stderr(reader, transport)


async def _start(
    arguments: Sequence[str], environment: Mapping[str, str], value: bytes, stderr: int
) -> asyncio.subprocess.Process:
    with tempfile.TemporaryFile() as stdin:
        stdin.write(value)
        stdin.seek(0)
        return await asyncio.create_subprocess_exec(
            *arguments,
            env=environment,
            stdin=stdin,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C is for the worker, which lets the process end.
        )


async def _read(stderr: asyncio.StreamReader, said: bytearray) -> None:
    """Pass stderr on, and keep its end."""
    while chunk := await stderr.read(65_536):
        sys.stderr.write(chunk.decode(errors="replace"))
        sys.stderr.flush()
        said += chunk
        del said[:-SAID_MAX]


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process and the processes that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), ENDS_WITHIN_S)
            return
