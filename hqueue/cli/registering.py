"""Adding commands to the application: their docstrings are their help."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from hqueue.errors import HQueueError, Outcome

__all__ = ["add_command", "only_reads", "unwrapped"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def add_command(app: typer.Typer, name: str, command: Callable[..., object], panel: str) -> None:
    """Add a command under a heading of the application's help."""
    text = unwrapped(inspect.getdoc(command) or "")
    if "[" in text:
        from rich.markup import escape  # noqa: PLC0415  (slow, and not for the version)

        text = escape(text)  # "[hub]" is no markup.
    app.command(name, rich_help_panel=panel, help=text)(command)


def only_reads(command: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Let no error of a command say that its outcome is unknown: a request that reads may have been
    carried out when its answer is lost, but that changes nothing.
    """

    @functools.wraps(command)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except HQueueError as exc:
            exc.outcome = Outcome.NOT_APPLIED
            raise

    return run


def unwrapped(text: str) -> str:
    """A text with each paragraph on one line: help is broken to the terminal's width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
