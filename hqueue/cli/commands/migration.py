"""``hqueue metadata migrate``: topics' metadata, moved to another store while hubs run."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import say
from hqueue.cli.known import check_queue
from hqueue.cli.output import write_json
from hqueue.cli.progress import Advance, count_text
from hqueue.cli.session import session_of
from hqueue.errors import InvalidInputError

if TYPE_CHECKING:
    from hqueue.metadata.managers import MetadataMigration

__all__ = ["migrate"]

NOUN = "record"
DRAIN_S_MAX = 3_600


class Store(enum.Enum):
    """Where it can be moved to."""

    ZOOKEEPER = "zookeeper"
    HBASE = "hbase"


def migrate(
    context: typer.Context,
    queue: shared_options.Queue,
    *,
    to: Annotated[
        Store | None,
        typer.Option(
            "--to", help="Move the metadata to this store, or resume an interrupted move to it."
        ),
    ] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Abandon an interrupted move.")
    ] = False,
    clear: Annotated[
        bool, typer.Option("--clear", help="Delete the copies that finished moves left behind.")
    ] = False,
    drain_timeout: Annotated[
        float,
        typer.Option(
            "--drain-timeout",
            min=0,
            max=DRAIN_S_MAX,
            help="How many seconds to wait for writers to finish their changes.",
        ),
    ] = 60,
) -> None:
    """Move the metadata of a queue's topics to another store while hubs run.

    Reads continue throughout. Changes continue while the records are copied, wait while the copy is
    compared, and then go to the new store, where hubs acquire their topics again. If the command
    is interrupted, run it again, or abandon the move with --abandon. Without options, print the
    store in force as JSON.
    """
    if (to is not None) + abandon + clear > 1:
        raise InvalidInputError("give one of --to, --abandon and --clear")
    client = session_of(context).client
    migration = client.metadata_migration(queue)
    if to is not None:
        _move(migration, queue, to, drain_timeout)
    elif abandon:
        done = migration.abandon()
        if not done:
            check_queue(client, queue)
        say(f"{'Abandoned.' if done else 'No move is under way.'}")
    elif clear:
        with Advance("clear", noun=NOUN) as bar:
            number = migration.clear(on_progress=lambda _, records: _count(bar, records))
        if not number:
            check_queue(client, queue)
        say(f"{count_text(number, NOUN)} deleted, not in force.")
    else:
        check_queue(client, queue)
        state = migration.state()
        write_json(
            {
                "queue": queue,
                "location": state.location._asdict(),
                "phase": state.phase.value,
                "copy": state.copy and state.copy._asdict(),
                "old_copies": [location._asdict() for location in state.old_copies],
            }
        )


def _move(migration: MetadataMigration, queue: str, to: Store, drain_s: float) -> None:
    with Advance("migrate", noun=NOUN) as bar:

        def on_progress(step: str, records: int) -> None:
            if not records:
                say(f"{step} …")
            _count(bar, records)

        number = migration.move(to.value, drain_ms=drain_s * 1e3, on_progress=on_progress)
    say(f"{queue}: in force in {to.value}, {count_text(number, NOUN)} moved.")


def _count(bar: Advance, records: int) -> None:
    for _ in range(records):
        bar.advance(0)
