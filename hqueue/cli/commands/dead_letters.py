"""``hqueue dead-letters``: lists, redrives and deletes dead letters."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import say
from hqueue.cli.known import check_group, check_subscriber
from hqueue.cli.output import show_table, write_json
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.errors import CorruptLogError, InvalidInputError
from hqueue.message_id import MessageID
from hqueue.position import POSITION_HELP, parse_position
from hqueue.runtime.only_reads import OnlyReads
from hqueue.texts.documents import extra_fields
from hqueue.texts.questions import delete_dead_letters
from hqueue.texts.shown import headers_text, iso_timestamp, key_text, printable

if TYPE_CHECKING:
    from hqueue.client import Client
    from hqueue.dead_letters.wrapping import DeadLetter
    from hqueue.message import Message, ReceivedMessage

__all__ = ["register"]

VALUE_SHOWN = 60
LISTED = 1_000


def dead_letters(
    context: typer.Context,
    queue: shared_options.Queue,
    subscriber: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBSCRIBER",
            help="Only dead letters of this subscriber. Give --group instead for a group.",
        ),
    ] = None,
    *,
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="Only dead letters of this consumer group or share group."
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", help="Only this partition.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only messages of this topic.")
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason", metavar="TEXT", help="Only dead letters whose reason contains this text."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help=f"Only dead letters put at this position or later: {POSITION_HELP}."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Only dead letters put before this position, given as for --since."),
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(
            "--show", metavar="ID", help="Show all of this dead letter; needs --partition."
        ),
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
    delete: Annotated[
        str | None,
        typer.Option("--delete", metavar="ID", help="Delete this dead letter; needs --partition."),
    ] = None,
    delete_all: Annotated[
        bool, typer.Option("--delete-all", help="Delete all listed dead letters.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            help="List, redrive or delete at most this many. Without it, a terminal lists 1,000.",
        ),
    ] = None,
    print_key: shared_options.PrintKey = False,
    print_headers: shared_options.PrintHeaders = False,
    yes: shared_options.Yes = False,
    json: shared_options.Json = False,
) -> None:
    """List the dead letters of a subscriber, of a group, or of all; redrive or delete them.

    A redrive delivers dead letters again, to their subscriber or group alone, after all messages
    that the partition has now. "id" is the ID of the dead letter; "original" is the ID of the
    message that failed. Dead letters that were redriven or deleted are no longer listed; deleted
    ones stay in the log until they expire, but are not delivered. Without a terminal: partition,
    ID, original, topic, attempts, reason, value; with tabs between; if neither a subscriber nor a
    group is given, "subscriber" or "group" and the name before them. JSON has the message's key and
    headers if it has them. Messages that are not valid dead letters are reported on stderr.
    """
    chosen = _chosen(show, redrive, delete, partition, all_=redrive_all or delete_all)
    if redrive_all and delete_all:
        raise InvalidInputError("give --redrive-all or --delete-all, not both")
    if redrive_all and subscriber is None and group is None:
        raise InvalidInputError(
            "--redrive-all needs the owner of the dead letters: give a subscriber or --group"
        )
    session = session_of(context)
    with session.client.queue(queue) as opened:
        waiting = opened.dead_letters.waiting(
            subscriber,
            partition,
            group=group,
            topic=topic,
            reason=reason,
            since=None if since is None else parse_position(since),
            until=None if until is None else parse_position(until),
            on_unreadable=_report_unreadable,
        )
        found = (each for each in waiting if chosen is None or each.id == chosen)
        letters: Iterator[DeadLetter] = itertools.islice(found, limit)
        first = OnlyReads()(next)(letters, None)
        if first is None:
            _check_owner(session.client, queue, subscriber, group)
            if chosen is not None:
                raise InvalidInputError(
                    "no such dead letter is waiting in this partition: it was never put, or it was "
                    "redriven or deleted already",
                    id=str(chosen),
                )
        else:
            letters = itertools.chain([first], letters)
        if redrive is not None or redrive_all:
            say(f"Redriven: {opened.dead_letters.redrive(letters):,}.")
        elif delete is not None or delete_all:
            if first is not None:
                one = None if chosen is None else str(chosen)
                session.confirm(delete_dead_letters(subscriber or group, queue, one), yes=yes)
            say(f"Deleted: {opened.dead_letters.delete(letters):,}.")
        elif json or show is not None:
            for letter in letters:
                write_json(_as_json(letter)) if json else _show(letter)
        else:
            shown = [("key", key_text)] * print_key + [("headers", headers_text)] * print_headers
            _list(letters, dict(shown), limit, owners=subscriber is None and group is None)


def _check_owner(client: Client, queue: str, subscriber: str | None, group: str | None) -> None:
    """Check that the subscriber or the group exists, since it has no such dead letters."""
    if group is not None:
        check_group(client, None, group)
    elif subscriber is not None:
        check_subscriber(client, queue, subscriber, of_topics=True)


def _chosen(
    show: str | None,
    redrive: str | None,
    delete: str | None,
    partition: int | None,
    *,
    all_: bool,
) -> MessageID | None:
    """The ID of the one dead letter to show, redrive or delete; None if no ID is given."""
    given = [each for each in (show, redrive, delete) if each is not None]
    if not given:
        return None
    if len(given) > 1 or all_ or partition is None:
        raise InvalidInputError(
            "--show ID, --redrive ID and --delete ID need --partition, and can't be combined with "
            "each other, or with --redrive-all and --delete-all"
        )
    return MessageID.parse(given[0])


def _list(
    letters: Iterator[DeadLetter],
    extra: dict[str, Callable[[Message], str]],
    limit: int | None,
    *,
    owners: bool,
) -> None:
    columns = ("partition", "id", "original", "topic", "attempts", "reason", *extra, "value")
    if owners:
        columns = ("of", "name", *columns)

    def row(letter: DeadLetter) -> tuple[object, ...]:
        cells = _cells(letter, extra.values())
        return (*letter.owner, *cells) if owners else cells

    if not sys.stdout.isatty():
        for letter in letters:  # One at a time: each may have megabytes.
            show_table(columns, [row(letter)])
        return
    shown = itertools.islice(letters, limit or LISTED)
    show_table(columns, map(row, shown), numbers=("partition", "attempts"))
    if limit is None and next(letters, None) is not None:
        say(f"There are more than {LISTED:,}: give --limit to list more.")


def _show(letter: DeadLetter) -> None:
    """Show one dead letter, with a line for each field."""
    message, owner = letter.message, letter.owner
    assert letter.id is not None
    fields = {
        owner.kind: owner.name,
        "partition": message.partition,
        "id": letter.id,
        "put": iso_timestamp(letter.id.timestamp),
        "original": message.id,
        "written": iso_timestamp(message.timestamp),
        "topic": message.topic,
        "attempts": letter.attempts,
        "reason": letter.reason,
        "key": key_text(message),
        "headers": headers_text(message),
        "value": "(expired)" if letter.expired else printable(message.value),
    }
    for name, value in fields.items():
        show_table(("field", "value"), [(name, value)])


def _report_unreadable(message: ReceivedMessage, error: CorruptLogError) -> None:
    reason = error.facts.get("reason", error.args[0] if error.args else "")
    say(
        f"Not a valid dead letter: partition {message.partition}, {message.id}, "
        f"{printable(message.topic)}: {printable(str(reason))}"
    )


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
        letter.owner.kind: letter.owner.name,
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
