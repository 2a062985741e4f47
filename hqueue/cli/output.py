"""Stdout: a fast stream of bytes, and small tables."""

from __future__ import annotations

import json as json_
import select
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from hqueue.cli.exits import OutputError
from hqueue.runtime.threads import start
from hqueue.runtime.waiting import Event

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Output", "drawn_table", "flush_stdout", "show_rows", "show_table", "write_json"]

FLUSH_EVERY_MS = 20


class Output:
    """Stdout for messages. It is buffered; as a context manager it is written out at the end.

    Args:
        prompt: write out what is buffered at most 20 ms later, and notice a reader that went
            away while nothing comes. For commands that wait for messages.
        on_closed: called from another thread when the reader went away, to end such a wait.

    Raises:
        BrokenPipeError: from `write`, `flush` and at the end: the reader went away.
        OutputError: likewise: the bytes could not be written.
    """

    def __init__(
        self, *, prompt: bool = False, on_closed: Callable[[], object] | None = None
    ) -> None:
        self._stream = sys.stdout.buffer
        self._prompt = prompt
        self._on_closed = on_closed
        self._lock = threading.Lock()
        self._dirty = False
        self._error: OSError | None = None
        self._ended = Event()
        self._flusher: threading.Thread | None = None

    def __enter__(self) -> Output:
        sys.stdout.flush()
        if self._prompt:
            self._flusher = start(self._run, name="hqueue-output")
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._ended.set()
        if self._flusher is not None:
            self._flusher.join()
        try:
            self.flush()
        except (BrokenPipeError, OutputError):
            if kind is None:
                raise

    def write(self, data: bytes) -> None:
        """Take bytes."""
        if self._error is not None:
            self._check()
        with self._lock:
            self._dirty = True
            try:
                self._stream.write(data)
            except OSError as exc:
                self._error = exc
        if self._error is not None:
            self._check()

    def flush(self) -> None:
        """Write out what is buffered, now."""
        self._flush()
        self._check()

    def _check(self) -> None:
        if isinstance(self._error, BrokenPipeError):
            raise self._error
        if self._error is not None:
            raise OutputError("can't write to stdout", reason=str(self._error))

    def _flush(self) -> None:
        with self._lock:
            self._dirty = False
            try:
                self._stream.flush()
            except OSError as exc:
                self._error = self._error or exc

    def _run(self) -> None:
        poller = select.poll()
        poller.register(
            self._stream.fileno(), 0
        )  # Only what it always reports: that it was closed.
        while not self._ended.wait(FLUSH_EVERY_MS / 1e3):
            if self._dirty:
                self._flush()
            elif any(event & select.POLLERR for _, event in poller.poll(0)):
                self._error = self._error or BrokenPipeError()
            if self._error is not None:
                if self._on_closed is not None:
                    self._on_closed()
                return


def flush_stdout() -> None:
    """Write out what is buffered for stdout.

    Raises:
        BrokenPipeError: the reader went away.
        OutputError: it could not be written.
    """
    _write("")


def write_json(value: object) -> None:
    """Write one JSON document on one line to stdout."""
    line = json_.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    _write(line + "\n")


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    numbers: Sequence[str] = (),
) -> None:
    """Show a table: drawn on a terminal; else a line a row, with tabs and without a heading.

    Args:
        columns: the headings.
        rows: the cells; None is shown as ``-``, and a text as `hqueue.texts.shown.printable`.
        title: what stands above it on a terminal.
        numbers: the columns to be aligned to the right.
    """
    if not sys.stdout.isatty():
        _write("".join("\t".join(map(_cell, row)) + "\n" for row in rows))
        return
    from rich.console import Console  # noqa: PLC0415  (only for terminals)

    Console().print(drawn_table(columns, rows, title=title, numbers=numbers))


def drawn_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    numbers: Sequence[str] = (),
) -> Table:
    """A table for a terminal; as `show_table`."""
    from rich import box  # noqa: PLC0415  (only for terminals)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, map(_cell, row)))
    return table


def _cell(value: object) -> str:
    from hqueue.texts.shown import printable  # noqa: PLC0415  (not for the version)

    return "-" if value is None else printable(str(value))


def show_rows(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    json: bool,
    numbers: Sequence[str] = (),
) -> None:
    """Show rows as a table; in JSON a document a row, whose fields are the columns."""
    if json:
        for row in rows:
            write_json(dict(zip(columns, row, strict=True)))
    else:
        show_table(columns, rows, numbers=numbers)


def _write(text: str) -> None:
    try:
        if text:  # Nothing would be written as nothing, which a full device refuses.
            sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise OutputError("can't write to stdout", reason=str(exc)) from exc
