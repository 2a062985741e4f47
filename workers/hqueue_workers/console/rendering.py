"""Renders pages. All that comes from the cluster is escaped."""

from __future__ import annotations

import datetime
import math
import urllib.parse
from collections.abc import Mapping
from typing import Any

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse

from hqueue import HQueueError
from hqueue.doctor.findings import said
from hqueue.errors import (
    BufferFullError,
    GroupNotFoundError,
    InvalidInputError,
    NotAllowedError,
    QueueNotFoundError,
    RequestRefusedError,
    StoreUnavailableError,
    SubscriberNotFoundError,
)
from hqueue.texts.shown import iso_timestamp, printable, size_text, ttl_text
from hqueue_workers.console.gate import SESSION, FormTokens
from hqueue_workers.console.history import Sample, Series, growth
from hqueue_workers.console.protocol import CALLER
from hqueue_workers.console.rights import Caller

__all__ = ["Renderer", "age_text", "query", "shortened"]

PREVIEW_LENGTH = 160
CHART_WIDTH, CHART_HEIGHT = 240.0, 40.0

_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (QueueNotFoundError, 404),
    (GroupNotFoundError, 404),
    (SubscriberNotFoundError, 404),
    (InvalidInputError, 400),
    (NotAllowedError, 403),
    (RequestRefusedError, 403),
    (StoreUnavailableError, 503),
    (BufferFullError, 503),
)


class Renderer:
    """Renders the console's templates.

    Args:
        tokens: makes the tokens of forms.
        allow_changes: whether the console makes changes.
    """

    def __init__(self, tokens: FormTokens, *, allow_changes: bool) -> None:
        self.tokens = tokens
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader("hqueue_workers.console", "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            age=age_text,
            at=iso_timestamp,
            chart=chart_points,
            count=count_cell,
            growth=growth,
            hexdump=hexdump,
            preview=preview,
            printable=printable,
            query=query,
            rate=rate_text,
            size=size_cell,
            ttl=ttl_text,
        )
        self._environment.globals["allow_changes"] = allow_changes

    def page(
        self, request: Request, template: str, status: int = 200, **context: Any
    ) -> HTMLResponse:
        """Render a page."""
        caller: Caller = request.scope[CALLER]
        context |= {
            "path": request.url.path,
            "principal": caller.principal,
            "token": self.tokens.token(request.scope[SESSION]),
        }
        return HTMLResponse(self.fragment(template, **context), status)

    def fragment(self, template: str, **context: Any) -> str:
        """Render a template alone."""
        return self._environment.get_template(template).render(context)

    def question(
        self, request: Request, question: str, details: str, fields: Mapping[str, str], back: str
    ) -> HTMLResponse:
        """Render a question before a change. The answer yes sends the fields again, with the field
        ``confirmed``.
        """
        sent = {name: text for name, text in fields.items() if name != "confirmed"}
        return self.page(
            request, "question.html", question=question, details=details, fields=sent, back=back
        )

    def error(self, request: Request, error: HQueueError) -> HTMLResponse:
        """Render the page of an error."""
        code = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
        # A form is sent again by its user alone.
        again = code == 503 and request.method == "GET"
        return self.page(request, "error.html", code, code=code, text=said(error), again=again)


def preview(value: bytes | str, length: int = PREVIEW_LENGTH) -> str:
    """The beginning of a value, on one line."""
    begun = value[: 4 * length]
    return shortened(printable(begun), length, more=len(value) > len(begun))


def shortened(text: str, length: int, *, more: bool = False) -> str:
    """A text of at most this length."""
    return text if len(text) <= length and not more else text[: length - 1] + "…"


def hexdump(value: bytes, bytes_max: int = 4_096) -> str:
    """The first bytes of a value in lines of 16: offset, hexadecimal, ASCII."""
    lines = []
    for offset in range(0, min(len(value), bytes_max), 16):
        row = value[offset : min(offset + 16, bytes_max)]
        letters = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in row)
        lines.append(f"{offset:08x}  {row.hex(' '):<47}  {letters}")
    return "\n".join(lines)


def count_cell(number: float | None) -> str:
    """A number for a table."""
    return "-" if number is None else f"{number:,}"


def size_cell(size: float | None) -> str:
    """A number of bytes for a table. HBase counts in whole MiB."""
    if size is None:
        return "-"
    return size_text(size) if size else "0 MB"


def rate_text(series: Series | None) -> str:
    """How many messages a second a queue gets."""
    rate = None if series is None else series.rate
    if rate is None:
        return "-"
    if 0 < rate < 0.05:
        return "<0.1"
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def age_text(age_ms: float | None) -> str:
    """A duration in its largest units."""
    if age_ms is None:
        return "-"
    if age_ms < 1_000:
        return f"{age_ms:.0f} ms"
    left = datetime.timedelta(seconds=math.floor(age_ms / 1e3))
    hours, minutes = divmod(left.seconds // 60, 60)
    if left.days:
        return f"{left.days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left.seconds % 60} s" if minutes else f"{left.seconds} s"


def query(path: str, **fields: object) -> str:
    """A path with a query that has the fields that are not None or empty."""
    given = {name: str(each) for name, each in fields.items() if each not in (None, "")}
    return f"{path}?{urllib.parse.urlencode(given)}" if given else path


def chart_points(series: Series | None) -> str:
    """The points of a line that shows a series, for a drawing of `CHART_WIDTH` and
    `CHART_HEIGHT`; empty without two samples.
    """
    samples: list[Sample] = [] if series is None else list(series.samples)
    if len(samples) < 2:
        return ""
    first_s, last_s = samples[0].at_s, samples[-1].at_s
    top = max(each.value for each in samples) or 1
    return " ".join(
        f"{(each.at_s - first_s) / ((last_s - first_s) or 1) * CHART_WIDTH:.1f},"
        f"{CHART_HEIGHT - 2 - each.value / top * (CHART_HEIGHT - 4):.1f}"
        for each in samples
    )
