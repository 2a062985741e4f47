"""Adding commands to the application: their docstrings are their help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer

from hqueue.errors import InvalidInputError

__all__ = ["commands", "duration_option", "group", "unwrapped"]

Register = Callable[[typer.Typer], None]
"""Adds commands to an application: what an entry point names."""


def commands(panel: str, *functions: Callable[..., object]) -> Register:
    """What adds these functions as commands of their names, under a heading of the help. One whose
    name Python has for itself ends with an underscore, which the command's does not.
    """

    def register(app: typer.Typer) -> None:
        for function in functions:
            text = unwrapped(inspect.getdoc(function) or "")
            if "[" in text:
                from rich.markup import escape  # noqa: PLC0415  (slow, and not for the version)

                text = escape(text)  # "[hub]" is not markup.
            name = function.__name__.removesuffix("_").replace("_", "-")
            app.command(name, rich_help_panel=panel, help=text)(function)

    return register


def group(panel: str, name: str, help: str, *functions: Callable[..., object]) -> Register:
    """Returns what adds a command of this name, with these functions as its subcommands."""

    def register(app: typer.Typer) -> None:
        subcommands = typer.Typer(help=help, no_args_is_help=True)
        commands("Commands", *functions)(subcommands)
        app.add_typer(subcommands, name=name, rich_help_panel=panel)

    return register


def duration_option(help: str, *names: str, low_ms: int = 0) -> Any:
    """An option that takes a duration, written as `hqueue.position.parse_duration_ms` says, and
    gives milliseconds.
    """

    def parse(text: str) -> int:
        from hqueue.position import parse_duration_ms  # noqa: PLC0415  (not needed for help)

        try:
            duration_ms = parse_duration_ms(str(text))
        except InvalidInputError as exc:
            raise typer.BadParameter(exc.text) from exc
        if duration_ms < low_ms:
            raise typer.BadParameter(f"this is less than {low_ms} ms")
        return duration_ms

    return typer.Option(*names, help=help, parser=parse, metavar="MS|5s|2m")


def unwrapped(text: str) -> str:
    """A text with each paragraph on one line: help is broken to the terminal's width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
