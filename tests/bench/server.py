"""The server that is measured."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator

from hqueue import local

__all__ = ["fresh_server"]

LOG_LINES = 20


@contextlib.contextmanager
def fresh_server(*, gateways: bool = True) -> Iterator[local.LocalServer]:
    """A standalone server without data; with gateways, for rivals that need them. When a benchmark
    fails, what it said last is shown.
    """
    with (
        tempfile.TemporaryDirectory(prefix="hqueue-bench-") as home,
        local.start(gateways=gateways, home=home) as server,
    ):
        try:
            yield server
        except Exception:
            for line in server.last_log_lines(LOG_LINES):
                print(f"{line.process}: {line.text}", file=sys.stderr)
            raise
