"""The commands that are installed: entry points of the group ``hqueue.commands``.

Each names a function that adds commands to the application, as `hqueue.cli.registering` does it.
What a package needs beyond HQueue stands as the entry point's extra.
"""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

import typer
from rich.markup import escape

from hqueue.errors import SettingsError
from hqueue.runtime.extras import installing

__all__ = ["load_commands"]

GROUP = "hqueue.commands"

ORDER = (
    *("queues", "put", "scan", "tail", "check", "consume", "groups", "metadata"),
    *(
        "subscribers",
        "subscribe",
        "lag",
        "dead-letters",
        "worker",
        "hub",
        "topics",
        "pipeline",
        "local",
        "demo",
        "shell",
    ),
)
"""The order in the help, by the names of the entry points; others follow by their names."""


def load_commands(app: typer.Typer) -> list[str]:
    """Add every command that is installed to the application.

    Returns:
        The packages that the commands are of.

    Raises:
        SettingsError: there are none.
    """
    points = sorted(importlib.metadata.entry_points(group=GROUP), key=_place)
    if not points:
        raise SettingsError("hqueue's commands are not registered: install it with pip")
    for point in points:
        try:
            register = point.load()
        except ImportError as exc:
            _add_missing(app, point, exc)
        else:
            register(app)
    return sorted({"hqueue", *(point.module.partition(".")[0] for point in points)})


def _place(point: EntryPoint) -> tuple[int, str]:
    place = ORDER.index(point.name) if point.name in ORDER else len(ORDER)
    return place, point.name


def _add_missing(app: typer.Typer, point: EntryPoint, error: ImportError) -> None:
    """Add a command that says what to install."""
    wanted = ",".join(point.extras)
    text = f"this needs more: {installing(wanted)}" if wanted else "this can't be loaded"

    def missing(_context: typer.Context) -> None:
        raise SettingsError(text, command=point.name, reason=str(error)) from error

    # Whatever follows the command's name, and --help as well, gets that answer.
    app.command(
        point.name,
        help=escape(text[0].upper() + text[1:]),
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        rich_help_panel="Not installed",
    )(missing)
