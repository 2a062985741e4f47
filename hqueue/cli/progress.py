"""Showing on stderr that something goes on, where it takes longer than a moment."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Advance", "count_text", "display"]

SHOWN_AFTER_S = 2.0
_LOOK_EVERY = 256


class Advance:
    """A progress bar on stderr, if that is a terminal, and once 2 s have passed.

    Args:
        label: what goes on.
        total_bytes: of how many; None if that is not known.
        noun: what is counted, in the singular.
    """

    def __init__(self, label: str, total_bytes: int | None = None, noun: str = "message") -> None:
        self._label = label
        self._noun = noun
        self._total_bytes = total_bytes
        self._begun_s = time.monotonic()
        self._calls = 0
        self._bytes = 0
        self._messages = 0
        self._lock = threading.Lock()
        self._enabled = sys.stderr.isatty()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Advance:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._enabled = False
            if self._bar is not None:
                self._bar.stop()

    def advance(self, size: int) -> None:
        """One message more, of this many bytes."""
        self._messages += 1
        self._bytes += size
        self._calls += 1
        if self._enabled and (self._calls >= _LOOK_EVERY or self._bar is not None):
            self._calls = 0
            self._show()

    def _show(self) -> None:
        with self._lock:
            if not self._enabled or time.monotonic() - self._begun_s < SHOWN_AFTER_S:
                return
            if self._bar is None:
                self._begin()
            assert self._bar is not None
            assert self._task is not None
            text = count_text(self._messages, self._noun)
            self._bar.update(self._task, completed=self._bytes, messages=text)

    def _begin(self) -> None:
        self._bar = display(
            *("{task.description}", "BarColumn", "DownloadColumn", "TransferSpeedColumn"),
            "{task.fields[messages]}",
        )
        self._task = self._bar.add_task(self._label, total=self._total_bytes, messages="")
        self._bar.start()


def display(*columns: str) -> Progress:
    """What shows on stderr how far something is, and is gone at its end.

    Args:
        columns: rich's columns by their names, or texts with a task's fields.
    """
    from rich import progress  # noqa: PLC0415  (only where it takes long)
    from rich.console import Console  # noqa: PLC0415

    made = [
        getattr(progress, each)() if hasattr(progress, each) else progress.TextColumn(each)
        for each in columns
    ]
    return progress.Progress(*made, console=Console(stderr=True), transient=True)


def count_text(number: int, noun: str) -> str:
    """A number of things for people: "1 batch", "1,000 messages".

    Args:
        number: how many.
        noun: what one of them is called.
    """
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"
