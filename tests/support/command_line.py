"""The command line in this process, with files as its stdin, stdout and stderr.

typer's own CliRunner has none with a descriptor, and the commands ask for that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO
from unittest import mock

from hqueue.cli.app import run
from hqueue.cli.session import Session

__all__ = ["run_here"]


def run_here(
    arguments: Sequence[str], stdin: bytes, environ: Mapping[str, str]
) -> tuple[int, bytes, str]:
    """Run a command, in a folder of its own, as if alone; its exit code, stdout and stderr."""
    with tempfile.TemporaryDirectory(prefix="hqueue-command-") as folder:
        files = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        files[0].write_bytes(stdin)
        with _alone(files, environ), Session() as session:
            code = run(list(arguments), session)
        return code, files[1].read_bytes(), files[2].read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def _alone(files: Sequence[Path], environ: Mapping[str, str]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        enter(mock.patch.dict(os.environ, environ, clear=True))
        for name, path, mode in zip(("stdin", "stdout", "stderr"), files, "rww", strict=True):
            stream = enter(path.open(mode, encoding="utf-8", errors="surrogateescape"))
            enter(mock.patch(f"sys.{name}", stream))
        enter(mock.patch("logging.root.handlers", [_logging_to(stream)]))
        yield


def _logging_to(stderr: TextIO) -> logging.Handler:
    """What the command logs is written, as it does it; what other threads do is not its own."""
    others = set(threading.enumerate()) - {threading.current_thread()}
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(logging.Formatter("hqueue: %(levelname)s: %(message)s"))
    handler.addFilter(lambda _: threading.current_thread() not in others)
    return handler
