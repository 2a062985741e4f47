"""The commands that are installed: entry points of the group ``hqueue.commands``.

Each is named like a command, and gives a function that adds this command to an application, as
`hqueue.cli.registering` does it, perhaps with others of its module. A command's module is loaded
when the command is used: the names alone say where it is. What a package needs beyond HQueue stands
as the entry point's extra.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import typer

from hqueue.errors import SettingsError
from hqueue.runtime.extras import installing

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["InstalledCommands", "installed_packages"]

GROUP = "hqueue.commands"

ORDER = (
    *("create", "list", "describe", "alter", "disable", "enable", "truncate", "delete"),
    *("locations", "put", "scan", "tail", "verify", "consume", "work", "groups", "metadata"),
    "secure-nodes",
    *("subscribers", "add-subscriber", "delete-subscriber", "seek", "subscribe", "lag"),
    *("dead-letters", "worker", "hub", "topics", "hubs", "access", "publish", "pipeline"),
    *("doctor", "console", "local", "demo", "shell"),
)
"""The order in the help; other commands follow by their names."""


class InstalledCommands(MutableMapping[str, Any]):
    """The commands by their names. A command is loaded when it is asked for, all of them when they
    are listed, and when one is asked for that no entry point is named like: a package may add
    several by one.

    Args:
        own: commands that are loaded already.

    Raises:
        SettingsError: no command is installed. From each access.
    """

    def __init__(self, own: MutableMapping[str, Any]) -> None:
        self._commands = dict(own)
        self._own = tuple(own)
        self._loaded: set[EntryPoint | str] = set()
        """Entry points, and what they name: several may name the same."""

    def __getitem__(self, name: str) -> Any:
        if name not in self._commands:
            self._load(*(point for point in _points() if point.name == name))
        if name not in self._commands:
            self._load(*_points())
        return self._commands[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        self._load(*_points())
        installed = sorted(self._commands.keys() - set(self._own), key=_place)
        return iter([*installed, *(name for name in self._own if name in self._commands)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load(self, *points: EntryPoint) -> None:
        for point in points:
            if point in self._loaded or point.value in self._loaded:
                continue
            adding = typer.Typer(pretty_exceptions_enable=False)
            try:
                register = point.load()
            except ImportError as exc:
                _add_missing(adding, point, exc)
                self._loaded.add(point)
            else:
                register(adding)
                self._loaded.add(point.value)
            for name, command in typer.main.get_group(adding).commands.items():
                self._commands.setdefault(name, command)


def installed_packages() -> list[str]:
    """The packages whose commands are installed."""
    return sorted({"hqueue", *(point.module.partition(".")[0] for point in _points())})


@functools.cache
def _points() -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # noqa: PLC0415  (slow, and not for the version)

    points = entry_points(group=GROUP)
    if not points:
        raise SettingsError("hqueue's commands are not registered: install hqueue with pip")
    return tuple(sorted(points, key=lambda point: _place(point.name)))


def _place(name: str) -> tuple[int, str]:
    return (ORDER.index(name) if name in ORDER else len(ORDER)), name


def _add_missing(app: typer.Typer, point: EntryPoint, error: ImportError) -> None:
    """Add a command that says what to install."""
    from rich.markup import escape  # noqa: PLC0415  (only where something is missing)

    wanted = ",".join(point.extras)
    text = (
        f"a package that the command needs is not installed: {installing(wanted)}"
        if wanted
        else "the command can't be loaded"
    )

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
