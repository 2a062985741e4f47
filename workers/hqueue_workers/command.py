"""``hqueue worker``: the process that delivers messages, serves the Thrift API, and is a hub."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import typer

from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.cli.setting_options import options_of
from hqueue_workers.hub.hub import Hub
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.node.settings import WorkerSettings
from hqueue_workers.roles import Role, run_until_signal
from hqueue_workers.worker import Worker

__all__ = ["register"]


@options_of(WorkerSettings)
def worker(context: typer.Context, *, given: Mapping[str, Any]) -> None:
    """Deliver messages to their subscribers, serve the Thrift API if it has a port, and be a hub if
    it has queues for one, until SIGTERM or Ctrl-C.

    One process a host is best, beside the region server; they share the partitions among them.
    The same settings can stand in HQUEUE_WORKER_* and in [worker] of the settings file; those of
    the hub stand in HQUEUE_HUB_* and in [hub]. At the
    end the calls under way are waited for, and others take over where this one stopped.
    """
    settings = WorkerSettings.load(given)

    async def run() -> None:
        client = session_of(context).client
        roles: list[Role] = []
        if settings.push or settings.api_port is not None:
            roles.append(Worker(client, settings))
        if settings.hub_queue_names:
            roles.append(Hub(client, settings.hub_queue_names, HubSettings.load()))
        await run_until_signal(roles)

    asyncio.run(run())


register = commands("Push", worker)
