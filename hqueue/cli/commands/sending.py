"""Messages from arguments, files and pipes, sent to a queue or, through hubs, to topics.

``hqueue put`` and ``hqueue publish`` are this, each with its own destination.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from hqueue.cli.commands.inputs import STDIN, open_input, reading, total_bytes
from hqueue.cli.commands.making import message_maker, parse_headers
from hqueue.cli.exits import ExitCode, OutputError, exit_code_of, say, show_error
from hqueue.cli.framing import Framing, read_values
from hqueue.cli.output import Output
from hqueue.cli.progress import Advance, count_text
from hqueue.cli.session import Session
from hqueue.errors import HQueueError, InvalidInputError
from hqueue.message import Message
from hqueue.message_id import MessageID
from hqueue.texts.shown import size_text

if TYPE_CHECKING:
    from hqueue.cli.commands.shipment import Producing, Shipment
    from hqueue.produce.delivery import Delivery

__all__ = [
    "Destination",
    "FileOption",
    "FramingOption",
    "HeaderOption",
    "KeySeparatorOption",
    "Source",
    "send_stream",
    "send_values",
]

HeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        metavar="NAME=VALUE",
        help="A header of each message. May be given several times; the order is kept.",
    ),
]
KeySeparatorOption = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="The text between key and value in each line of files and pipes.",
    ),
]
FileOption = Annotated[
    list[str] | None,
    typer.Option("--file", "-f", help="A file to read messages from; - for stdin."),
]
FramingOption = Annotated[
    Framing,
    typer.Option(
        "--format",
        help="How files and pipes separate messages: lines; json, one document per line, as scan "
        "writes them (IDs and partitions are ignored, dead letters left out); or "
        "length-prefixed, 4 bytes (big-endian) before each. With json, each VALUE is a "
        "document, too.",
    ),
]


@dataclasses.dataclass(frozen=True)
class Destination:
    """Where messages go.

    Args:
        name: what it is called at the end.
        verb: what was done with the messages that are there: ``written``, ``published``.
        producer: makes what sends messages in the background.
        placing: what its `send` is given besides each message.
    """

    name: str
    verb: str
    producer: Callable[[], Producing]
    placing: Mapping[str, object] = dataclasses.field(default_factory=dict)


class Source:
    """What a command was given to send: values, or else files and pipes. Checked when it is made.

    Args:
        session: the command's.
        values: messages that were given as arguments.
        files: the names of files; stdin if neither they nor values are given.
        framing: how messages are told apart.
        topic: of each message; of documents those that have none.
        key: the messages' own key.
        headers: of each message, as ``NAME=VALUE``.
        separator: stands between key and value in lines.

    Raises:
        InvalidInputError: these don't go together.
    """

    def __init__(
        self,
        session: Session,
        values: Sequence[str] | None,
        files: Sequence[str] | None,
        *,
        framing: Framing,
        topic: str,
        key: bytes | None,
        headers: Sequence[str] | None,
        separator: str | None,
    ) -> None:
        if values and files:
            raise InvalidInputError("give values or files, not both")
        if values and separator is not None:
            raise InvalidInputError(
                "a key separator works only with lines of files and pipes: give one message key "
                "for values"
            )
        if values and framing is Framing.LENGTH_PREFIXED:
            raise InvalidInputError(
                "length-prefixed values are read from files and pipes: they can't be given as "
                "arguments"
            )
        self._make = message_maker(framing, topic, key, parse_headers(headers or ()), separator)
        if session.in_shell and not values and (not files or STDIN in files):
            raise InvalidInputError("the shell reads stdin itself: give values or files")
        self.session = session
        self.values = values or ()
        self.files = files or (STDIN,)
        self.framing = framing
        self.left_out = 0
        """How many messages a copy leaves out, of those that were read."""

    def messages(self) -> list[Message]:
        """The values as messages."""
        made = [self._make(os.fsencode(value)) for value in self.values]
        messages = [each for each in made if each is not None]
        self.left_out = len(made) - len(messages)
        return messages

    def read_into(
        self, take: Callable[[Message], bool], inputs: Sequence[tuple[str, BinaryIO]]
    ) -> None:
        """Read the messages of opened files and pipes, for as long as they are taken.

        Raises:
            HQueueError: something can't be read, or is not a message.
        """
        unit = "message" if self.framing is Framing.LENGTH_PREFIXED else "line"
        for name, stream in inputs:
            name = "stdin" if name == STDIN else name  # noqa: PLW2901
            values = reading(read_values(stream, self.framing, name), name)
            for number, value in enumerate(values, 1):
                try:
                    message = self._make(value)
                except HQueueError as exc:
                    exc.facts = {"input": name, unit: number, **exc.facts}
                    raise
                if message is None:
                    self.left_out += 1
                elif not take(message):
                    return


def send_values(
    source: Source,
    send: Callable[[Sequence[Message]], Sequence[MessageID]],
    to: Destination,
    *,
    print_ids: bool,
    quiet: bool,
    wanted: bool = True,
) -> None:
    """Send the values that were given, all or none, and say so.

    Args:
        source: has them.
        send: sends them; the IDs, without those of the first ones that were there already.
        to: where they go.
        print_ids: whether their IDs are printed.
        quiet: whether nothing is said of what succeeded.
        wanted: whether somebody asked for the IDs: where nobody did, a stdout that does not take
            them is not a failure, by which a script would send all again.
    """
    messages = source.messages()
    _say_left_out(source.left_out)
    begun_s = time.monotonic()
    ids = send(messages) if messages else ()
    seconds = time.monotonic() - begun_s
    printed = not print_ids
    try:
        if print_ids:
            with Output() as out:
                out.write("".join(f"{message_id}\n" for message_id in ids).encode())
            printed = True
    except OutputError:
        if wanted:
            raise
    finally:
        if not quiet or not printed:  # What was written is said where its IDs can't be.
            repeated = len(messages) - len(ids)
            size = sum(message.size for message in messages[repeated:])
            text = _summary(to, len(ids), size, seconds)
            if repeated:
                text += f" The first {repeated:,} were there already."
            say(text)


def send_stream(source: Source, to: Destination, *, print_ids: bool, quiet: bool) -> ExitCode:
    """Send what files and pipes hold, and say what became of it; the exit code."""
    from hqueue.cli.commands.shipment import Shipment  # noqa: PLC0415  (brings in the producer)

    shipment: Shipment | None = None
    error: BaseException | None = None
    try:
        with contextlib.ExitStack() as stack:
            if STDIN in source.files and sys.stdin.isatty():
                say("Reading messages from the terminal; Ctrl-D ends.")
            inputs = [(name, stack.enter_context(open_input(name))) for name in source.files]
            total = None if source.framing is Framing.JSON else total_bytes(inputs)
            bar = stack.enter_context(Advance(f"{to.verb} to {to.name}", total))
            out = stack.enter_context(Output(prompt=True)) if print_ids else None

            def arrived(delivery: Delivery[MessageID], size: int) -> None:
                bar.advance(size)
                if out is not None:
                    out.write(f"{delivery.result()}\n".encode())

            shipment = begun = Shipment(to.producer(), on_written=arrived)

            def take(message: Message) -> bool:
                begun.send(message, **to.placing)
                return begun.error is None

            try:
                source.read_into(take, inputs)
            except (HQueueError, KeyboardInterrupt) as exc:
                error = exc
            try:
                shipment.close()
            except KeyboardInterrupt as exc:
                error = exc
    except (OutputError, BrokenPipeError) as exc:  # The last IDs can't be printed.
        error = error or exc
    assert shipment is not None  # Nothing is printed before.
    return _report(source, shipment, shipment.error or error, to, quiet=quiet)


def _report(
    source: Source,
    shipment: Shipment,
    error: BaseException | None,
    to: Destination,
    *,
    quiet: bool,
) -> ExitCode:
    lost = shipment.failed + shipment.unknown
    if not quiet or error is not None or lost:
        text = _summary(to, shipment.written, shipment.written_bytes, shipment.seconds)
        if lost:
            were = "was" if shipment.failed == 1 else "were"
            first = shipment.first_lost or 0
            begin = (
                "message of the input is"
                if first == 1
                else f"{count_text(first, 'message')} of the input are"
            )
            text += (
                f" {shipment.failed:,} {were} refused, {shipment.unknown:,} may be {to.verb} or "
                f"may be not. The first {begin} {to.verb}."
            )
        say(text)
    _say_left_out(source.left_out)
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
        show_error(error, verbose=source.session.verbose > 1)
    elif isinstance(error, KeyboardInterrupt):
        return code or ExitCode.INTERRUPTED
    elif error is not None:
        raise error
    return code


def _say_left_out(count: int) -> None:
    if count:
        say(f"Left out: {count:,} of topics that begin with 'hqueue.', which are the system's own.")


def _summary(to: Destination, messages: int, size: int, seconds: float) -> str:
    rate = f", {messages / seconds:,.0f} messages/s" if seconds > 0 and messages > 1 else ""
    count = count_text(messages, "message")
    return f"{count} ({size_text(size)}) {to.verb} to {to.name} in {seconds:.2f} s{rate}."
