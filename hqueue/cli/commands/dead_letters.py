"""``hqueue dead-letters``: messages that a subscriber did not take, and putting them back."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.commands.subscribers import NameArgument
from hqueue.cli.documents import extra_fields
from hqueue.cli.exits import say
from hqueue.cli.formats import headers_text, iso_timestamp, key_text, printable
from hqueue.cli.known import check_subscriber
from hqueue.cli.output import show_table, write_json
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.errors import CorruptLogError, InvalidInputError
from hqueue.message_id import MessageID
from hqueue.runtime.only_reads import OnlyReads

if TYPE_CHECKING:
    from hqueue.dead_letters.wrapping import DeadLetter
    from hqueue.message import Message, ReceivedMessage
    from hqueue.queue import Queue

__all__ = ["register"]

VALUE_SHOWN = 60


def dead_letters(
    context: typer.Context,
    queue: shared_options.Queue,
    subscriber: NameArgument,
    *,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Only this partition.")
    ] = None,
    redrive: Annotated[
        str | None,
        typer.Option(
            "--redrive", metavar="ID", help="Redrive this dead letter; needs --partition."
        ),
    ] = None,
    redrive_all: Annotated[
        bool, typer.Option("--redrive-all", help="Redrive all listed dead letters.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help="List, or redrive, at most this many."),
    ] = None,
    print_key: shared_options.PrintKey = False,
    print_headers: shared_options.PrintHeaders = False,
    json: shared_options.Json = False,
) -> None:
    """List a subscriber's dead letters, or redrive them: put them back for this subscriber alone.

    The ID is the dead letter's own; "original" is the ID of the message that failed. Redriven
    messages are delivered after all that their partition has now, and are listed no more. Without a
    terminal: partition, ID, original, topic, attempts, reason, value; with tabs between. JSON has
        the message's key and headers if it has them. Messages that are not valid dead letters are
        reported on stderr.
    """
    if redrive is not None and (redrive_all or partition is None):
        raise InvalidInputError(
            "--redrive ID needs --partition, and can't be combined with --redrive-all"
        )
    wanted = None if redrive is None else MessageID.parse(redrive)
    with session_of(context).client.queue(queue) as opened:
        waiting = opened.dead_letters.waiting(
            subscriber, partition, on_unreadable=_report_unreadable
        )
        letters: Iterator[DeadLetter] = itertools.islice(
            (each for each in waiting if wanted is None or each.id == wanted), limit
        )
        first = OnlyReads()(next)(letters, None)
        if first is None:
            check_subscriber(session_of(context).client, queue, subscriber, of_topics=True)
        else:
            letters = itertools.chain([first], letters)
        if wanted is not None or redrive_all:
            _put_back(opened, letters, wanted)
        elif json:
            for letter in letters:
                write_json(_as_json(letter))
        else:
            extra: dict[str, Callable[[Message], str]] = {}
            if print_key:
                extra["key"] = key_text
            if print_headers:
                extra["headers"] = headers_text
            columns = ("partition", "id", "original", "topic", "attempts", "reason", *extra)
            rows = (_cells(letter, extra.values()) for letter in letters)
            show_table((*columns, "value"), rows, numbers=("partition", "attempts"))


def _report_unreadable(message: ReceivedMessage, error: CorruptLogError) -> None:
    reason = error.facts.get("reason", error.args[0] if error.args else "")
    say(
        f"No dead letter: partition {message.partition}, {message.id}, "
        f"{printable(message.topic)}: {printable(str(reason))}"
    )


def _put_back(queue: Queue, letters: Iterator[DeadLetter], wanted: MessageID | None) -> None:
    count = queue.dead_letters.redrive(letters)
    if wanted is not None and not count:
        raise InvalidInputError(
            "the subscriber has no dead letter with this ID in the partition, or it was redriven "
            "already",
            id=str(wanted),
        )
    say(f"Put back: {count:,}.")


def _cells(letter: DeadLetter, extra: Iterable[Callable[[Message], str]]) -> tuple[object, ...]:
    message, shown = letter.message, printable(letter.message.value)
    if letter.expired:
        shown = "(expired)"
    elif sys.stdout.isatty() and len(shown) > VALUE_SHOWN:
        shown = shown[: VALUE_SHOWN - 1] + "…"
    cells = (message.partition, letter.id, message.id, message.topic)
    facts = (letter.attempts, letter.reason)
    return (*cells, *facts, *(text_of(message) for text_of in extra), shown)


def _as_json(letter: DeadLetter) -> dict[str, object]:
    message = letter.message
    assert letter.id is not None
    return {
        "partition": message.partition,
        "id": str(letter.id),
        "timestamp": iso_timestamp(letter.id.timestamp),
        "original": str(message.id),
        "topic": message.topic,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "expired": letter.expired,
        **extra_fields(message),
        "value": message.value.decode("utf-8", "backslashreplace"),
    }


register = commands("Subscribers", dead_letters)
