"""What the messages hold: bytes that can't be compressed, and text that can."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
from collections.abc import Iterator

__all__ = ["PAYLOADS", "Payload"]

DISTINCT = 10_000
"""So many values differ; then they come again."""

_PATHS = ("/", "/search", "/cart", "/login", "/static/app.js", "/api/v2/items", "/api/v2/users")
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (iPhone)", "curl/8.5.0", "okhttp/4.12")


@dataclasses.dataclass(frozen=True)
class Payload:
    """Values of one size.

    Args:
        size: bytes of a value.
        text: lines of a web server's log in JSON; random bytes if not.
        messages: how many of them are one round's work.
    """

    size: int
    text: bool
    messages: int

    @property
    def name(self) -> str:
        """What it is called in the results."""
        size = f"{self.size} B" if self.size < 1_000 else f"{self.size // 1_000} KB"
        return f"{size} {'text' if self.text else 'random'}"

    def values(self, count: int) -> list[bytes]:
        """So many values, the same in every run if they are text."""
        lines = _lines(random.Random(0))
        make = (lambda: _cut(lines, self.size)) if self.text else (lambda: os.urandom(self.size))
        distinct = [make() for _ in range(min(count, DISTINCT))]
        return list(itertools.islice(itertools.cycle(distinct), count))


def _lines(chance: random.Random) -> Iterator[bytes]:
    for number in itertools.count():
        record = {
            "time": f"2026-11-21T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
            "path": chance.choice(_PATHS),
            "user": f"u{chance.randrange(50_000)}",
            "status": chance.choice((200, 200, 200, 301, 404)),
            "ms": round(chance.expovariate(1 / 40), 1),
            "agent": chance.choice(_AGENTS),
        }
        yield json.dumps(record).encode() + b"\n"


def _cut(lines: Iterator[bytes], size: int) -> bytes:
    text = b""
    while len(text) < size:
        text += next(lines)
    return text[:size]


PAYLOADS = tuple(
    Payload(size, text, messages)
    for size, messages in ((100, 200_000), (1_000, 40_000), (10_000, 4_000))
    for text in (False, True)
)
