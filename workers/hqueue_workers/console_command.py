"""``hqueue console``: pages in a browser that show a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import typer

from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.cli.setting_options import options_of
from hqueue_workers.console.console import Console
from hqueue_workers.console.settings import ConsoleSettings
from hqueue_workers.roles import run_until_signal

__all__ = ["register"]


@options_of(ConsoleSettings)
def console(context: typer.Context, *, given: Mapping[str, Any]) -> None:
    """Serve the console, pages in a browser that show queues, messages, groups and the cluster's
    health, until SIGTERM or Ctrl-C.

    By default only this machine reaches it, and it only reads. Settings can also be given as
    HQUEUE_CONSOLE_* variables or in [console] of the settings file.
    """
    settings = ConsoleSettings.load(given)

    async def run() -> None:
        await run_until_signal([Console(session_of(context).client, settings)])

    asyncio.run(run())


register = commands("Configuration", console)
