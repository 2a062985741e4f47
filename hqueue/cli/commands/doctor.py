"""``hqueue doctor`` finds what is wrong with a configuration."""

from __future__ import annotations

import collections
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import ExitCode, say
from hqueue.cli.hub_clients import HubsOption
from hqueue.cli.output import show_rows
from hqueue.cli.progress import count_text
from hqueue.cli.registering import commands
from hqueue.cli.session import session_of
from hqueue.cli.setting_options import KIND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hqueue.doctor import Finding
    from hqueue.errors import HQueueError

__all__ = ["register"]


def doctor(
    context: typer.Context,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            help="Also check this queue's hubs, and whether the queue can be read and written, "
            "with a small row that is deleted again.",
        ),
    ] = None,
    hubs: HubsOption = None,
    json: shared_options.Json = False,
) -> None:
    """Check settings, including those of workers and hubs, files, certificates, Kerberos, host
    names, clocks, ZooKeeper, HBase and hubs.

    Each line says what was found and what to do. A check takes at most 20 seconds. The check of
    ZooKeeper creates a node and deletes it. The exit code is 1 if something is wrong; warnings
    don't count.
    """
    from hqueue.doctor import Level, examine  # noqa: PLC0415  (not needed for help)
    from hqueue.settings.connection import Settings, settings_faults  # noqa: PLC0415
    from hqueue.topics.settings import hub_addresses  # noqa: PLC0415

    given = session_of(context).given
    load, faults = partial(Settings.load, given), partial(settings_faults, given)
    named = () if hubs is None else hub_addresses(hubs)
    counts: collections.Counter[Level] = collections.Counter()

    def counted(finding: Finding) -> tuple[str, str, str, str]:
        counts[finding.level] += 1
        return finding.check, finding.level.value, finding.found, finding.advice

    examined = examine(
        load, faults=faults, role_faults=partial(_role_faults, context), queue=queue, hubs=named
    )
    found = map(counted, examined)
    show_rows(("check", "state", "found", "advice"), found, json=json)
    warnings = count_text(counts[Level.WARNING], "warning")
    say(f"{counts[Level.WRONG]} wrong, {warnings}, {counts[Level.OK]} ok.")
    if counts[Level.WRONG]:
        raise typer.Exit(ExitCode.FAILED)


def _role_faults(context: typer.Context) -> Iterator[HQueueError]:
    """Yield the errors of the settings of each role whose command is installed."""
    from hqueue.settings.loading import ROLES, role_settings_faults  # noqa: PLC0415

    installed: Any = context.find_root().command
    for role in ROLES:
        if role in installed.commands:
            kind = getattr(installed.commands[role].callback, KIND, None)
            if kind is not None:
                yield from role_settings_faults(kind, role)


register = commands("Configuration", doctor)
