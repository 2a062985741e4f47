"""``hqueue worker``: the process that delivers messages, serves the Thrift API, and is a hub."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from hqueue.cli.registering import add_command, duration_option
from hqueue.cli.session import session_of
from hqueue_workers.hub.hub import Hub
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.node.settings import WorkerSettings
from hqueue_workers.roles import Role, run_until_signal
from hqueue_workers.worker import Worker

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    add_command(app, "worker", worker, "Push")


def worker(
    context: typer.Context,
    *,
    name: Annotated[str | None, typer.Option(help="Its name, another for each process.")] = None,
    host: Annotated[str | None, typer.Option(help="Where producers reach it.")] = None,
    listen_host: Annotated[
        str | None, typer.Option(help="Where it listens for them, if not there.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="For notifications; 0 for a free one.")] = None,
    region_host: Annotated[
        str | None, typer.Option(help="This host as HBase names its region server.")
    ] = None,
    metrics_host: Annotated[str | None, typer.Option(help="Where metrics are served.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Of /health and /metrics; 0 for a free one.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Requests to HBase at a time.")] = None,
    memory_bytes_max: Annotated[
        int | None, typer.Option(help="What was read and is not delivered yet.")
    ] = None,
    connections_per_subscriber: Annotated[
        int | None, typer.Option(help="Calls to one subscriber at a time.")
    ] = None,
    poll_ms_max: Annotated[
        int | None, duration_option("How often an idle partition is looked at.")
    ] = None,
    pushed_bytes_max: Annotated[
        int | None,
        typer.Option(help="What may wait of what came with notifications; 0: believe none."),
    ] = None,
    checkpoint_ms: Annotated[
        int | None, duration_option("How often checkpoints are written.")
    ] = None,
    drain_ms: Annotated[
        int | None, duration_option("How long calls under way are waited for at a stop.")
    ] = None,
    push: Annotated[
        bool | None, typer.Option(help="Deliver to subscribers, which is the default.")
    ] = None,
    hub_queues: Annotated[
        str | None,
        typer.Option(help="Be a hub of these queues, too: names, with commas between."),
    ] = None,
    api_port: Annotated[
        int | None, typer.Option(help="Serve the Thrift API there; 0 for a free one.")
    ] = None,
    api_host: Annotated[str | None, typer.Option(help="Where the Thrift API listens.")] = None,
    api_threads: Annotated[
        int | None, typer.Option(help="Calls of the Thrift API at a time.")
    ] = None,
    api_connections_max: Annotated[
        int | None, typer.Option(help="Connections to the Thrift API.")
    ] = None,
    api_idle_ms: Annotated[
        int | None, duration_option("How long the API keeps an unused scanner or connection.")
    ] = None,
    scanners_max: Annotated[int | None, typer.Option(help="Scanners of the API.")] = None,
    scanner_bytes_max: Annotated[
        int | None, typer.Option(help="What a scanner of the API reads, and answers, at a time.")
    ] = None,
    scanners_bytes_max: Annotated[
        int | None, typer.Option(help="What scanners of the API hold together.")
    ] = None,
) -> None:
    """Deliver messages to their subscribers, serve the Thrift API if it has a port, and be a hub if
    it has queues for one, until SIGTERM or Ctrl-C.

    One process a host is best, beside the region server; they share the partitions among them.
    The same settings can stand in HQUEUE_WORKER_* and in [worker] of the settings file; those of
    the hub stand in HQUEUE_HUB_* and in [hub]. At the
    end the calls under way are waited for, and others take over where this one stopped.
    """
    settings = WorkerSettings.load(
        {
            "name": name,
            "host": host,
            "listen_host": listen_host,
            "port": port,
            "region_host": region_host,
            "metrics_host": metrics_host,
            "metrics_port": metrics_port,
            "threads": threads,
            "memory_bytes_max": memory_bytes_max,
            "connections_per_subscriber": connections_per_subscriber,
            "poll_ms_max": poll_ms_max,
            "pushed_bytes_max": pushed_bytes_max,
            "checkpoint_ms": checkpoint_ms,
            "drain_ms": drain_ms,
            "push": push,
            "hub_queues": hub_queues,
            "api_port": api_port,
            "api_host": api_host,
            "api_threads": api_threads,
            "api_connections_max": api_connections_max,
            "api_idle_ms": api_idle_ms,
            "scanners_max": scanners_max,
            "scanner_bytes_max": scanner_bytes_max,
            "scanners_bytes_max": scanners_bytes_max,
        }
    )

    async def run() -> None:
        client = session_of(context).client
        roles: list[Role] = []
        if settings.push or settings.api_port is not None:
            roles.append(Worker(client, settings))
        if settings.hub_queue_names:
            roles.append(Hub(client, settings.hub_queue_names, HubSettings.load()))
        await run_until_signal(roles)

    asyncio.run(run())
