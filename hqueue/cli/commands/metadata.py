"""``hqueue metadata``: what hubs keep about topics: shown, exported, imported, moved, verified."""

from __future__ import annotations

import itertools
import json as json_
import os
import stat
import urllib.parse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.commands.inputs import open_input
from hqueue.cli.commands.migration import migrate
from hqueue.cli.exits import ExitCode, say, show_error
from hqueue.cli.known import check_queue
from hqueue.cli.output import Output, show_rows, write_json
from hqueue.cli.progress import Advance, count_text
from hqueue.cli.registering import group
from hqueue.cli.session import session_of
from hqueue.errors import HQueueError, InvalidInputError, UnsupportedFormatError
from hqueue.runtime.only_reads import OnlyReads

if TYPE_CHECKING:
    from hqueue.metadata.managers import Info, Subject, TopicMetadata, Versioned

__all__ = ["register"]

LINE_BYTES_MAX = 1024 * 1024
NOUN = "record"

KindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        "-k",
        help="Only these kinds of records: persistence, subscription or ownership.",
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="The store: zookeeper or hbase; by default the one in force."),
]


@OnlyReads()
def list_(
    context: typer.Context,
    queue: shared_options.Queue,
    *,
    kind: KindOption = None,
    store: StoreOption = None,
    json: shared_options.Json = False,
) -> None:
    """List the records of a queue's topics: kind, topic, subscriber, version, separated by tabs.

    Kinds: "persistence", where a topic's messages lie; "subscription", a subscriber's preferences
    and cursor; "ownership", which hub owns a topic. Names are escaped as in URLs. Records that
    can't be read are reported on stderr; the exit code is then 5.
    """

    def line(subject: Subject, found: Versioned[Info]) -> bytes:
        names = subject._asdict() | {"version": found.version}
        if json:
            return _line({"queue": queue, **names})
        return ("\t".join(map(_cell, names.values())) + "\n").encode()

    _write_records(context, queue, line, kinds=kind, store=store, label="list")


@OnlyReads()
def get(
    context: typer.Context,
    queue: shared_options.Queue,
    topic: shared_options.Topic,
    subscriber: Annotated[
        str | None,
        typer.Argument(metavar="SUBSCRIBER", help="Only this subscriber's subscriptions."),
    ] = None,
    *,
    store: StoreOption = None,
) -> None:
    """Show a topic's records as JSON lines: who owns it, where its messages lie, its subscriptions.

    The lines are those of "export". The exit code is 1 if the topic has no records.
    """
    from hqueue.metadata.managers import Subject, write_document  # noqa: PLC0415

    found: dict[Subject, Versioned[Any] | None] = {}
    with _open(context, queue, store) as metadata:
        if subscriber is None:
            whole = metadata.persistence.read_topic_persistence_info(topic).result()
            owner = metadata.ownership.read_owner_info(topic).result()
            found |= {Subject("persistence", topic): whole, Subject("ownership", topic): owner}
            there = metadata.subscriptions.read_subscriptions(topic).result()
            found |= {Subject("subscription", topic, name): there[name] for name in sorted(there)}
        else:
            one = metadata.subscriptions.read_subscription_data(topic, subscriber).result()
            found[Subject("subscription", topic, subscriber)] = one
    documents = [
        write_document(queue, subject, each.value, each.version)
        for subject, each in found.items()
        if each is not None
    ]
    for document in documents:
        write_json(document)
    if not documents:
        check_queue(session_of(context).client, queue)
        say(f"No records of topic {topic} in {queue}.")
        raise typer.Exit(ExitCode.FAILED)


@OnlyReads()
def hubs(
    context: typer.Context, queue: shared_options.Queue, json: shared_options.Json = False
) -> None:
    """List the available hubs of a queue: address, incarnation, load.

    Without a terminal, tabs separate the columns.
    """
    with _open(context, queue, None) as metadata:
        there = [hub for _, hub in sorted(metadata.hubs.list().items())]
    if not there:
        check_queue(session_of(context).client, queue)
    rows = ((str(hub.info.address), hub.info.incarnation, hub.load) for hub in there)
    show_rows(("address", "incarnation", "load"), rows, json=json, numbers=("load",))


@OnlyReads()
def export(
    context: typer.Context,
    queue: shared_options.Queue,
    *,
    kind: KindOption = None,
    store: StoreOption = None,
) -> None:
    """Write the records of a queue's topics to stdout, one JSON document per line.

    Each record is written in the state in which the scan finds it. Records that can't be read are
    reported on stderr and left out; the exit code is then 5. "import" reads these lines, except for
    owners, which hubs elect.
    """
    from hqueue.metadata.managers import write_document  # noqa: PLC0415

    def line(subject: Subject, found: Versioned[Info]) -> bytes:
        return _line(write_document(queue, subject, found.value, found.version))

    _write_records(context, queue, line, kinds=kind, store=store, label="export")


def import_(
    context: typer.Context,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="A file that export wrote; - for stdin.")
    ] = "-",
    *,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", help="Import into this queue, not the one in the lines."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Overwrite records that differ.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Import records into a store: create those that are missing.

    A record that exists with the same content is left alone, so an interrupted import can be
    repeated. A record with other content is refused, or overwritten with --overwrite. Refused
    records, and lines that are not records, are reported on stderr, and the import goes on; the
    exit code is then 1. Owners are skipped: hubs elect them.
    """
    from hqueue.metadata.managers import import_infos  # noqa: PLC0415

    counts = dict.fromkeys(("created", "unchanged", "overwritten", "skipped", "refused"), 0)
    with open_input(file) as stream, Advance("import", _size(stream), NOUN) as bar:
        lines = _Lines(stream, queue, bar)
        for name, of_queue in itertools.groupby(lines, key=lambda each: each[0]):
            with _open(context, name, store) as metadata:
                infos = ((subject, info) for _, subject, info in of_queue)
                for done in import_infos(metadata, infos, overwrite=overwrite):
                    counts[done.result] += 1
                    if done.reason is not None:
                        _show_refused(done.subject, done.reason)
    counts["refused"] += lines.wrong
    say(", ".join(f"{number:,} {what}" for what, number in counts.items()))
    if counts["refused"]:
        raise typer.Exit(ExitCode.FAILED)


@OnlyReads()
def verify(
    context: typer.Context,
    queue: shared_options.Queue,
    *,
    against: Annotated[
        str | None,
        typer.Option("--against", help="Compare with this store, too: zookeeper or hbase."),
    ] = None,
    store: StoreOption = None,
    json: shared_options.Json = False,
) -> None:
    """Read every record of a queue's topics, and compare it with another store's if one is given.

    Records that can't be read, and records that differ, are listed with their kind, topic and
    subscriber; the exit code is 5 if there are any. Owners are not compared. If hubs change a
    record meanwhile, a listed difference may already be gone.
    """
    number = 0
    with _open(context, queue, store) as metadata, Advance("verify", noun=NOUN) as bar:
        for key, subject, problem in _findings(context, metadata, queue, against, bar):
            number += 1
            names = (None, None, None) if subject is None else subject
            if json:
                found = dict(zip(("kind", "topic", "subscriber"), names, strict=True))
                write_json({**found, "path": key, "problem": problem})
            else:
                print("\t".join([*map(_cell, names), problem]))
        if not number and next(metadata.entries(), None) is None:
            check_queue(session_of(context).client, queue)
    say(f"{count_text(number, 'problem')} in {queue}.")
    if number:
        raise typer.Exit(ExitCode.CORRUPT)


def _findings(
    context: typer.Context, metadata: TopicMetadata, queue: str, against: str | None, bar: Advance
) -> Iterator[tuple[str, Subject | None, str]]:
    from hqueue.metadata.managers import compare_metadata  # noqa: PLC0415

    if against == metadata.store:
        raise InvalidInputError(
            "the metadata can't be compared with its own store: name the other store", store=against
        )
    # What else can't be read is found when it is compared.
    for entry in metadata.entries() if against is None else metadata.entries(["ownership"]):
        bar.advance(0)
        if isinstance(entry.found, UnsupportedFormatError):
            yield entry.key, entry.subject, str(entry.found)
    if against is not None:
        with _open(context, queue, against) as other:
            yield from compare_metadata(metadata, other)


def _write_records(
    context: typer.Context,
    queue: str,
    line: Callable[[Subject, Versioned[Info]], bytes],
    *,
    kinds: list[str] | None,
    store: str | None,
    label: str,
) -> None:
    """Write a line for each record; those that can't be read are named on stderr."""
    number = broken = 0
    with (
        _open(context, queue, store) as metadata,
        Output() as output,
        Advance(label, noun=NOUN) as bar,
    ):
        for entry in metadata.entries(kinds) if kinds else metadata.entries():
            number += 1
            bar.advance(0)
            if isinstance(entry.found, UnsupportedFormatError):
                broken += 1
                show_error(entry.found)
            elif entry.subject is not None:
                output.write(line(entry.subject, entry.found))
        if not number:
            check_queue(session_of(context).client, queue)
    if broken:
        say(f"{count_text(broken, NOUN)} can't be read.")
        raise typer.Exit(ExitCode.CORRUPT)


class _Lines:
    """The records in lines; lines that are not records are reported on stderr, and counted."""

    def __init__(self, stream: BinaryIO, queue: str | None, bar: Advance) -> None:
        self.wrong = 0
        self._stream = stream
        self._queue = queue
        self._bar = bar

    def __iter__(self) -> Iterator[tuple[str, Subject, Info]]:
        from hqueue.metadata.managers import read_document  # noqa: PLC0415
        from hqueue.settings.attributes import check_queue_name  # noqa: PLC0415

        for number in itertools.count(1):
            line = self._read()
            if not line:
                return
            self._bar.advance(len(line))
            try:
                if len(line) > LINE_BYTES_MAX:
                    raise InvalidInputError("a line is too long", bytes_max=LINE_BYTES_MAX)
                queue, subject, info = read_document(line)
                queue = check_queue_name(self._queue or queue)
            except (InvalidInputError, UnsupportedFormatError) as exc:
                self.wrong += 1
                exc.facts = {"line": number, **exc.facts}
                show_error(exc)
                continue
            yield queue, subject, info

    def _read(self) -> bytes:
        """The next line; of one that is too long as much as shows that, and the rest is gone."""
        line = self._stream.readline(LINE_BYTES_MAX + 1)
        rest = line
        while len(rest) > LINE_BYTES_MAX and not rest.endswith(b"\n"):
            rest = self._stream.readline(LINE_BYTES_MAX + 1)
        return line


def _open(context: typer.Context, queue: str, store: str | None) -> TopicMetadata:
    return session_of(context).client.topic_metadata(queue, store=store)


def _show_refused(subject: Subject, error: HQueueError) -> None:
    names = {name: value for name, value in subject._asdict().items() if value is not None}
    error.facts = {**names, **error.facts}
    show_error(error)


def _line(document: dict[str, object]) -> bytes:
    line = json_.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return line.encode("utf-8", "backslashreplace") + b"\n"


def _cell(value: object) -> str:
    return "-" if value is None else urllib.parse.quote(str(value), safe=":")


def _size(stream: BinaryIO) -> int | None:
    """How long a file is."""
    state = os.fstat(stream.fileno())
    return state.st_size if stat.S_ISREG(state.st_mode) else None


register = group(
    "Hubs",
    "metadata",
    "List, export, import, move and verify the records that hubs keep of topics.",
    *(list_, get, hubs, export, import_, migrate, verify),
)
