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
    """Run a worker, which delivers messages to their subscribers, until SIGTERM or Ctrl-C.

    With --api-port it serves the Thrift API, too, and with --hub-queues it is also a hub. Run one
    worker on each host of a region server: workers share the partitions among them. Settings can
    also be given as HQUEUE_WORKER_* variables or in [worker] of the settings file, and those of the
    hub as HQUEUE_HUB_* or in [hub]. When the worker stops, it waits for calls under way, and other
    workers take over where it stopped.
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
