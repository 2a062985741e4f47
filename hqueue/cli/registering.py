"""Adding commands to the application: their docstrings are their help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer

__all__ = ["add_command", "unwrapped"]


def add_command(app: typer.Typer, name: str, command: Callable[..., Any], panel: str) -> None:
    """Add a command under a heading of the application's help."""
    app.command(name, rich_help_panel=panel, help=unwrapped(inspect.getdoc(command) or ""))(command)


def unwrapped(text: str) -> str:
    """A text with each paragraph on one line: help is broken to the terminal's width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
