"""``hqueue topics`` and ``hubs``: topics with owners."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any, NoReturn

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.commands.metadata import hubs
from hqueue.cli.commands.topic_consume import consume, unsubscribe
from hqueue.cli.exits import ExitCode, say
from hqueue.cli.hub_clients import HubsOption, hub_client
from hqueue.cli.known import check_queue
from hqueue.cli.output import show_rows, show_table, write_json
from hqueue.cli.registering import commands, group
from hqueue.cli.session import session_of
from hqueue.errors import UnsupportedFormatError
from hqueue.runtime.only_reads import OnlyReads
from hqueue.texts.shown import printable

__all__ = ["register"]


NUMBERS = ("ranges", "partition", "epoch", "lag", "age_ms")
NAMES = "Names with commas between; one that ends with * matches all names with that prefix."


@OnlyReads()
def list_(
    context: typer.Context, queue: shared_options.Queue, json: shared_options.Json = False
) -> None:
    """List a queue's topics: topic, number of its ranges of the log, and the partition and the
    epoch of the last range.

    Without a terminal, tabs separate the columns. Records that can't be read are reported on
    stderr; the exit code is then 5.
    """
    from hqueue.metadata.managers import TopicPersistenceInfo  # noqa: PLC0415

    rows: list[tuple[object, ...]] = []
    broken = False
    with session_of(context).client.topic_metadata(queue) as metadata:
        for entry in metadata.entries(["persistence"]):
            if isinstance(entry.found, UnsupportedFormatError) or entry.subject is None:
                say(f"hqueue: {entry.found}")
                broken = True
                continue
            assert isinstance(entry.found.value, TopicPersistenceInfo)
            ranges = entry.found.value.ranges
            last = ranges[-1] if ranges else None
            rows.append(
                (
                    entry.subject.topic,
                    len(ranges),
                    None if last is None else last.partition,
                    None if last is None else last.epoch,
                )
            )
    if not rows and not broken:
        check_queue(session_of(context).client, queue)
    show_rows(("topic", "ranges", "partition", "epoch"), rows, json=json, numbers=NUMBERS)
    if broken:
        raise typer.Exit(ExitCode.CORRUPT)


@OnlyReads()
def owners(
    context: typer.Context, queue: shared_options.Queue, json: shared_options.Json = False
) -> None:
    """List the owners of a queue's topics: topic, the hub's address, whether that hub is available.

    Without a terminal, tabs separate the columns.
    """
    rows: list[tuple[object, ...]] = []
    with session_of(context).client.topic_metadata(queue) as metadata:
        there = {hub.info for hub in metadata.hubs.list().values()}
        for topic in metadata.persistence.topics():
            found = metadata.ownership.read_owner_info(topic).result()
            if found is not None:
                rows.append((topic, str(found.value.address), found.value in there))
    if not rows:
        check_queue(session_of(context).client, queue)
    show_rows(("topic", "hub", "available"), rows, json=json, numbers=NUMBERS)


@OnlyReads()
def describe(
    context: typer.Context,
    queue: shared_options.Queue,
    topic: shared_options.Topic,
    *,
    json: shared_options.Json = False,
) -> None:
    """Show the ranges of the log in which a topic's messages lie, oldest first: partition, first
    and last ID, the owner's epoch. The last range is open while the topic is published to.

    Without a terminal, tabs separate the columns. The exit code is 1 if there is no such topic.
    """
    with session_of(context).client.topic_metadata(queue) as metadata:
        found = metadata.persistence.read_topic_persistence_info(topic).result()
        owner = metadata.ownership.read_owner_info(topic).result()
    if found is None:
        check_queue(session_of(context).client, queue)
        _say_missing(queue, topic)
    if sys.stdout.isatty():
        print(f"owner: {'none' if owner is None else owner.value.address}")
    rows: list[tuple[object, ...]] = [
        (
            each.partition,
            str(each.first),
            None if each.last is None else str(each.last),
            each.epoch,
        )
        for each in found.value.ranges
    ]
    show_rows(("partition", "first", "last", "epoch"), rows, json=json, numbers=NUMBERS)


@OnlyReads()
def subscriptions(
    context: typer.Context,
    queue: shared_options.Queue,
    topic: shared_options.Topic,
    *,
    json: shared_options.Json = False,
) -> None:
    """List a topic's subscriptions and their lag: subscriber, the last ID that it consumed, lag in
    messages, age of the oldest of these messages in milliseconds, whether the lag is exact.

    The lag is counted from the stored cursor. If a subscription is many thousand batches behind,
    its lag is an upper bound, which counts messages of other topics too. Without a terminal, tabs
    separate the columns. The exit code is 1 if there is no such topic.
    """
    client = session_of(context).client
    with client.topic_metadata(queue) as metadata:
        found = metadata.subscriptions.read_subscriptions(topic).result()
        if metadata.persistence.read_topic_persistence_info(topic).result() is None:
            check_queue(client, queue)
            _say_missing(queue, topic)
    consumed = {
        subscriber: each.value.state.consumed
        for subscriber, each in sorted(found.items())
        if each.value.state is not None
    }
    with client.queue(queue) as opened:
        lags = opened.topic_lags(topic, {name: last + 1 for name, last in consumed.items()})
    rows: list[tuple[object, ...]] = [
        (name, str(last), lags[name].messages, lags[name].age_ms, lags[name].exact)
        for name, last in consumed.items()
    ]
    show_rows(
        ("subscriber", "consumed", "lag", "age_ms", "exact"), rows, json=json, numbers=NUMBERS
    )


def move(
    context: typer.Context,
    queue: shared_options.Queue,
    topic: shared_options.Topic,
    to: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The hub's registered address.")],
    *,
    hubs: HubsOption = None,
    caller: Annotated[str, typer.Option(help="The caller's name, as hubs see it.")] = "hqueue",
) -> None:
    """Move a topic to another hub. Like any topic, it may later move on to other hubs."""
    with hub_client(context, queue, hubs, caller) as client:
        client.topic(topic).move(to)


def acl(
    context: typer.Context,
    queue: shared_options.Queue,
    topic: shared_options.Topic,
    *,
    publish: Annotated[str | None, typer.Option(help=f"Who may publish. {NAMES}")] = None,
    subscribe: Annotated[str | None, typer.Option(help="Who may subscribe and consume.")] = None,
    manage: Annotated[
        str | None, typer.Option(help="Who may move and delete it, and change its ACL.")
    ] = None,
    hubs: HubsOption = None,
    caller: Annotated[str, typer.Option(help="The caller's name, as hubs see it.")] = "hqueue",
    json: shared_options.Json = False,
) -> None:
    """Show a topic's ACL, or replace some of its lists. The output has each list and its names. A
    topic that does not exist is created if a list is given.

    ACLs hold where hubs have the setting authorizer = "acl" or "rules".
    """
    lists = {"publish": publish, "subscribe": subscribe, "manage": manage}
    given: dict[str, Any] = {
        what: [name.strip() for name in names.split(",") if name.strip()]
        for what, names in lists.items()
        if names is not None
    }

    with (
        contextlib.nullcontext() if given else OnlyReads(),
        hub_client(context, queue, hubs, caller) as client,
    ):
        of = client.topic(topic)
        found = of.set_acl(**given) if given else of.acl()
    if json:
        write_json({what: list(getattr(found, what)) for what in lists})
        return
    show_table(("what", "who"), [(what, ", ".join(getattr(found, what))) for what in lists])


def delete(
    context: typer.Context,
    queue: shared_options.Queue,
    topic: shared_options.Topic,
    *,
    hubs: HubsOption = None,
    caller: Annotated[str, typer.Option(help="The caller's name, as hubs see it.")] = "hqueue",
    yes: shared_options.Yes = False,
) -> None:
    """Delete a topic and its subscriptions. Its messages stay in the queue until their TTL ends,
    but a topic that is created later under this name has none of them.
    """
    session_of(context).confirm(f"Delete topic {printable(topic)} and its subscriptions?", yes=yes)
    with hub_client(context, queue, hubs, caller) as client:
        if not client.topic(topic).delete():
            _say_missing(queue, topic)


def _say_missing(queue: str, topic: str) -> NoReturn:
    say(f"There is no topic {printable(topic)} in {queue}.")
    raise typer.Exit(ExitCode.FAILED)


_topics = group(
    "Hubs",
    "topics",
    "List, describe, move, consume and delete the topics that hubs own.",
    *(list_, describe, owners, subscriptions, move, acl, delete, consume, unsubscribe),
)
_hubs = commands("Hubs", hubs)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    _topics(app)
    _hubs(app)
