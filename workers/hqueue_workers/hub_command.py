"""``hqueue hub``: the process that owns topics, and publishes to them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.cli.setting_options import options_of
from hqueue_workers.hub.hub import Hub
from hqueue_workers.hub.settings import HubSettings
from hqueue_workers.roles import run_until_signal

__all__ = ["register"]

_API_LIMITS = (
    "api_threads", "api_connections_max", "api_idle_ms",
    "scanners_max", "scanner_bytes_max", "scanners_bytes_max",
)  # fmt: skip
"""Settings that a hub takes from its file and environment alone."""


@options_of(HubSettings, without=_API_LIMITS)
def hub(
    context: typer.Context,
    queues: Annotated[list[str], typer.Argument(metavar="QUEUE…", help="The queues to serve.")],
    *,
    given: Mapping[str, Any],
) -> None:
    """Run a hub, which owns topics of queues and publishes to them, until SIGTERM or Ctrl-C.

    Any number of hubs share a queue's topics. Settings can also be given as HQUEUE_HUB_* variables
    or in [hub] of the settings file. When the hub stops, it answers the calls under way and
    releases its topics.
    """
    settings = HubSettings.load(given)

    async def run() -> None:
        await run_until_signal([Hub(session_of(context).client, queues, settings)])

    asyncio.run(run())


register = commands("Hubs", hub)
