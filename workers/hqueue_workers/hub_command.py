"""``hqueue hub``: the process that owns topics, and publishes to them."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from hqueue.cli.registering import add_command, duration_option
from hqueue.cli.session import session_of
from hqueue_workers.hub.hub import Hub
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.roles import run_until_signal

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    add_command(app, "hub", hub, "Hubs")


def hub(
    context: typer.Context,
    queues: Annotated[list[str], typer.Argument(metavar="QUEUE…", help="The queues to serve.")],
    *,
    host: Annotated[str | None, typer.Option(help="Where clients reach it.")] = None,
    listen_host: Annotated[
        str | None, typer.Option(help="Where it listens for them, if not there.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="For clients; 0 for a free one.")] = None,
    metrics_host: Annotated[str | None, typer.Option(help="Where metrics are served.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Of /health and /metrics; 0 for a free one.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Calls read, and topics taken over, at a time.")
    ] = None,
    connections_max: Annotated[int | None, typer.Option(help="Clients' connections.")] = None,
    topics_max: Annotated[int | None, typer.Option(help="Topics owned, of each queue.")] = None,
    creations_per_hour_max: Annotated[
        int | None, typer.Option(help="Topics that each caller may create.")
    ] = None,
    pending_bytes_max: Annotated[
        int | None, typer.Option(help="What may wait to be appended.")
    ] = None,
    subscriptions_max: Annotated[
        int | None, typer.Option(help="Subscriptions attached, of each queue.")
    ] = None,
    deliveries_max: Annotated[
        int | None, typer.Option(help="Calls to subscribers at a time, of each queue.")
    ] = None,
    session_ms: Annotated[
        int | None, duration_option("How long a subscriber's session may be silent.")
    ] = None,
    balance_ms: Annotated[
        int | None, duration_option("How often load is told, and topics are given up.")
    ] = None,
    choice: Annotated[
        str | None, typer.Option(help="Which hub a topic goes to: by load, or uniform.")
    ] = None,
    callback_networks: Annotated[
        str | None, typer.Option(help="Where subscribers may be called: private, any, or networks.")
    ] = None,
    drain_ms: Annotated[
        int | None, duration_option("How long calls under way are waited for at a stop.")
    ] = None,
    api_port: Annotated[
        int | None, typer.Option(help="Serve the Thrift API here, too; 0 for a free port.")
    ] = None,
    api_host: Annotated[str | None, typer.Option(help="Where the Thrift API listens.")] = None,
    authorizer: Annotated[
        str | None, typer.Option(help="Who may do what: all, or rules (by topics' rules).")
    ] = None,
    creators: Annotated[
        str | None, typer.Option(help="By rules: who may create topics; names, or '*'.")
    ] = None,
    administrators: Annotated[
        str | None, typer.Option(help="By rules: who may do everything; names.")
    ] = None,
) -> None:
    """Own topics of queues and publish to them, until SIGTERM or Ctrl-C.

    Any number of hubs share a queue's topics. The same settings can stand in HQUEUE_HUB_* and in
    [hub] of the settings file. At the end the calls under way are answered, and all topics are
    released.
    """
    settings = HubSettings.load(
        {
            "host": host,
            "listen_host": listen_host,
            "port": port,
            "metrics_host": metrics_host,
            "metrics_port": metrics_port,
            "threads": threads,
            "connections_max": connections_max,
            "topics_max": topics_max,
            "creations_per_hour_max": creations_per_hour_max,
            "pending_bytes_max": pending_bytes_max,
            "subscriptions_max": subscriptions_max,
            "deliveries_max": deliveries_max,
            "session_ms": session_ms,
            "balance_ms": balance_ms,
            "choice": choice,
            "callback_networks": callback_networks,
            "drain_ms": drain_ms,
            "api_port": api_port,
            "api_host": api_host,
            "authorizer": authorizer,
            "creators": creators,
            "administrators": administrators,
        }
    )

    async def run() -> None:
        await run_until_signal([Hub(session_of(context).client, queues, settings)])

    asyncio.run(run())
