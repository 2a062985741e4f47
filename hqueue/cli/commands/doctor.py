"""``hqueue doctor``: what is wrong with a configuration."""

from __future__ import annotations

import collections
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import ExitCode, say
from hqueue.cli.hub_clients import HubsOption
from hqueue.cli.output import show_rows
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of

if TYPE_CHECKING:
    from hqueue.doctor import Finding

__all__ = ["register"]


def doctor(
    context: typer.Context,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            help="Check also whether this queue may be read and written, and its hubs. A small row "
            "is written and deleted.",
        ),
    ] = None,
    hubs: HubsOption = None,
    json: shared_options.Json = False,
) -> None:
    """Check the configuration, and name what is wrong: settings, files, certificates, Kerberos,
    names of hosts, clocks, ZooKeeper, HBase and hubs.

    Each line says what was found and what to do. Each check takes 20 seconds at most. In ZooKeeper
    a node is created and deleted. The exit code is 1 if something is wrong; a warning does not
    count.
    """
    from hqueue.doctor import Level, examine  # noqa: PLC0415  (not needed for help)
    from hqueue.settings.connection import Settings  # noqa: PLC0415
    from hqueue.topics.settings import hub_addresses  # noqa: PLC0415

    load = partial(Settings.load, session_of(context).given)
    named = () if hubs is None else hub_addresses(hubs)
    counts: collections.Counter[Level] = collections.Counter()

    def counted(finding: Finding) -> tuple[str, str, str, str]:
        counts[finding.level] += 1
        return finding.check, finding.level.value, finding.found, finding.advice

    found = map(counted, examine(load, queue=queue, hubs=named))
    show_rows(("check", "state", "found", "advice"), found, json=json)
    say(
        f"{counts[Level.WRONG]} wrong, {counts[Level.WARNING]} to look at, {counts[Level.OK]} well."
    )
    if counts[Level.WRONG]:
        raise typer.Exit(ExitCode.FAILED)


register = commands("Configuration", doctor)
