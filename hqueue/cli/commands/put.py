"""``hqueue put``: messages from arguments, files and pipes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from hqueue.cli.commands.making import Make, message_maker, parse_headers
from hqueue.cli.exits import ExitCode, OutputError, exit_code_of, show_error
from hqueue.cli.framing import Framing, read_values
from hqueue.cli.output import Output
from hqueue.cli.progress import Advance, size_text
from hqueue.cli.registering import add_command
from hqueue.cli.session import Session, session_of
from hqueue.errors import HQueueError, InvalidInputError
from hqueue.message import Message
from hqueue.message_id import MessageID
from hqueue.moment import MOMENT_HELP, parse_moment

if TYPE_CHECKING:
    from hqueue.cli.commands.shipment import Shipment
    from hqueue.produce.delivery import Delivery
    from hqueue.queue import Queue

__all__ = ["STDIN", "open_input", "register"]

STDIN = "-"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    add_command(app, "put", put, "Messages")


def put(
    context: typer.Context,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")],
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="VALUE", help="Messages, or documents; written all or none."),
    ] = None,
    *,
    topic: Annotated[
        str,
        typer.Option(
            "--topic", "-t", help="The messages' topic; of documents those that have none."
        ),
    ] = "",
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="The partition; any if not given.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            "-k",
            help="Chooses the partition: the same key, the same partition. It is not stored: "
            "--message-key is.",
        ),
    ] = None,
    message_key: Annotated[
        str | None,
        typer.Option(
            "--message-key",
            help="The messages' own key: stored with each, and chooses the partition, alike, "
            "unless --partition or --key does.",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            help="A header of each message. May be given several times; the order is kept.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help="Each line of files and pipes is a message's own key, this text, and the value.",
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            help="What these values are known by in the partition: repeated with the same one "
            "they are written once. Needs --partition, --key or --message-key.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help=f"A moment before the first put with the idempotency key: {MOMENT_HELP}. All of "
            "the log "
            "that is kept is searched if not given.",
        ),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", help="A file to read messages from; - for stdin."),
    ] = None,
    framing: Annotated[
        Framing,
        typer.Option(
            "--format",
            help="How messages are written in files and pipes: a line each, a document in JSON "
            "a line as scan writes it (where it lay is not looked at; dead letters are left out), "
            "or a length of 4 bytes (big-endian) before each. With json, each VALUE is a document.",
        ),
    ] = Framing.LINES,
    print_ids: Annotated[
        bool, typer.Option("--print-ids", help="Print the messages' IDs, in their order.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")] = False,
) -> None:
    """Put messages into a queue: values given here, or what files or stdin hold.

    Values given as arguments are one batch, all or none. Files and stdin are written as they are
    read; with --partition, --key or --message-key in their order, else those of one key in theirs,
    and what has no key spread over the partitions. When something fails, reading ends, and stderr
    says how many messages were written.
    """
    session = session_of(context)
    if values and file:
        raise InvalidInputError("give values or files, not both")
    if idempotency_key is not None and not values:
        raise InvalidInputError(
            "an idempotency key is for values given as arguments, which are one batch"
        )
    if values and key_separator is not None:
        raise InvalidInputError("a key separator is for lines of files and pipes")
    if values and framing is Framing.LENGTH_PREFIXED:
        raise InvalidInputError("lengths stand before values in files and pipes, not in arguments")
    own = None if message_key is None else os.fsencode(message_key)
    make = message_maker(
        framing,
        topic,
        own,
        parse_headers(header or ()),
        key_separator,
    )
    if session.in_shell and not values and (not file or STDIN in file):
        raise InvalidInputError("the shell reads stdin itself: give values or files")
    with session.client.queue(queue) as opened:
        where = opened.choose_partition(partition, None if key is None else os.fsencode(key))
        if where is None:
            where = opened.choose_partition(None, own)
        if values:
            made = [make(os.fsencode(value)) for value in values]
            messages = [each for each in made if each is not None]
            _say_left_out(len(made) - len(messages))
            begins = None if since is None else parse_moment(since)
            _put_at_once(
                lambda: opened.put(
                    messages, partition=where, idempotency_key=idempotency_key, since=begins
                ),
                opened,
                messages,
                where,
                print_ids=print_ids,
                quiet=quiet,
            )
            return
        code = _Stream(session, opened, make, where).put(
            file or [STDIN], framing, print_ids=print_ids, quiet=quiet
        )
    if code:
        raise typer.Exit(code)


def _put_at_once(
    put: Callable[[], Sequence[MessageID]],
    queue: Queue,
    messages: Sequence[Message],
    partition: int | None,
    *,
    print_ids: bool,
    quiet: bool,
) -> None:
    begun_s = time.monotonic()
    ids = put() if messages else ()
    seconds = time.monotonic() - begun_s
    printed = not print_ids
    try:
        if print_ids:
            with Output() as out:
                out.write("".join(f"{message_id}\n" for message_id in ids).encode())
            printed = True
    finally:
        if not quiet or not printed:  # What was written is said where its IDs can't be.
            size = sum(message.size for message in messages)
            print(_summary(queue, len(messages), size, seconds, partition), file=sys.stderr)


class _Stream:
    """Putting what files and pipes hold."""

    def __init__(self, session: Session, queue: Queue, make: Make, partition: int | None) -> None:
        self._session = session
        self._queue = queue
        self._make = make
        self._partition = partition
        self._left_out = 0

    def put(
        self, files: Sequence[str], framing: Framing, *, print_ids: bool, quiet: bool
    ) -> ExitCode:
        """Put it all, and say what became of it; the exit code."""
        from hqueue.cli.commands.shipment import Shipment  # noqa: PLC0415  (brings in the producer)

        shipment: Shipment | None = None
        error: BaseException | None = None
        try:
            with contextlib.ExitStack() as stack:
                if STDIN in files and sys.stdin.isatty():
                    print("Reading messages from the terminal; Ctrl-D ends.", file=sys.stderr)
                inputs = [(name, stack.enter_context(open_input(name))) for name in files]
                total = None if framing is Framing.JSON else _total_bytes(inputs)
                bar = stack.enter_context(Advance(f"put {self._queue.name}", total))
                out = stack.enter_context(Output(prompt=True)) if print_ids else None

                def written(delivery: Delivery[MessageID], size: int) -> None:
                    bar.advance(size)
                    if out is not None:
                        out.write(f"{delivery.result()}\n".encode())

                shipment = Shipment(self._queue, on_written=written)
                try:
                    self._send(shipment, inputs, framing)
                except (HQueueError, KeyboardInterrupt) as exc:
                    error = exc
                try:
                    shipment.close()
                except KeyboardInterrupt as exc:
                    error = exc
        except (OutputError, BrokenPipeError) as exc:  # The last IDs can't be printed.
            error = error or exc
        assert shipment is not None  # Nothing is printed before.
        return self._report(shipment, shipment.error or error, quiet=quiet)

    def _send(
        self, shipment: Shipment, inputs: Sequence[tuple[str, BinaryIO]], framing: Framing
    ) -> None:
        make, partition, send = self._make, self._partition, shipment.send
        unit = "message" if framing is Framing.LENGTH_PREFIXED else "line"
        for name, stream in inputs:
            name = "stdin" if name == STDIN else name  # noqa: PLW2901
            values = _reading(read_values(stream, framing, name), name)
            for number, value in enumerate(values, 1):
                try:
                    message = make(value)
                except HQueueError as exc:
                    exc.facts = {"input": name, unit: number, **exc.facts}
                    raise
                if message is None:
                    self._left_out += 1
                    continue
                send(message, partition=partition)
                if shipment.error is not None:
                    return

    def _report(self, shipment: Shipment, error: BaseException | None, *, quiet: bool) -> ExitCode:
        lost = shipment.failed + shipment.unknown
        if not quiet or error is not None or lost:
            text = _summary(
                self._queue,
                shipment.written,
                shipment.written_bytes,
                shipment.seconds,
                self._partition,
            )
            if lost:
                text += (
                    f" {shipment.failed:,} were refused, {shipment.unknown:,} may be written or "
                    "may be not. "
                    f"The first {shipment.first_lost or 0:,} messages of the input are written."
                )
            print(text, file=sys.stderr)
        _say_left_out(self._left_out)
        if shipment.unknown:
            code = ExitCode.OUTCOME_UNKNOWN
        elif isinstance(error, HQueueError):
            code = exit_code_of(error)
        else:
            code = ExitCode.DONE
        if isinstance(error, OutputError):
            if not shipment.unknown:
                raise error
        elif isinstance(error, HQueueError):
            show_error(error, verbose=self._session.verbose > 1)
        elif isinstance(error, KeyboardInterrupt):
            return code or ExitCode.INTERRUPTED
        elif error is not None:
            raise error
        return code


def _say_left_out(count: int) -> None:
    if count:
        print(
            f"Left out: {count:,} of topics that begin with 'hqueue.', which are the system's own.",
            file=sys.stderr,
        )


def open_input(name: str) -> BinaryIO:
    """Open a file to be read from; ``-`` is stdin.

    Raises:
        InvalidInputError: it can't be read.
    """
    if name == STDIN:
        descriptor = sys.stdin.fileno()
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            raise InvalidInputError("stdin can't be read: it is closed, or open for writing")
        return open(descriptor, "rb", closefd=False)
    try:
        return Path(name).expanduser().open("rb")
    except (OSError, ValueError, RuntimeError) as exc:  # A name that none has, a home of nobody.
        reason = exc.strerror if isinstance(exc, OSError) else str(exc)
        raise InvalidInputError("a file can't be read", file=name, reason=reason) from exc


def _reading(values: Iterator[bytes], name: str) -> Iterator[bytes]:
    try:
        yield from values
    except OSError as exc:
        raise InvalidInputError("an input can't be read", input=name, reason=str(exc)) from exc


def _total_bytes(inputs: Sequence[tuple[str, BinaryIO]]) -> int | None:
    states = [os.fstat(stream.fileno()) for _, stream in inputs]
    if all(stat.S_ISREG(state.st_mode) for state in states):
        return sum(state.st_size for state in states)
    return None


def _summary(queue: Queue, messages: int, size: int, seconds: float, partition: int | None) -> str:
    where = queue.name if partition is None else f"{queue.name}, partition {partition}"
    rate = f", {messages / seconds:,.0f} messages/s" if seconds > 0 and messages > 1 else ""
    noun = "message" if messages == 1 else "messages"
    return f"{messages:,} {noun} ({size_text(size)}) written to {where} in {seconds:.2f} s{rate}."
