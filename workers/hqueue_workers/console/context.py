"""What the console's pages share."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from hqueue import HQueueError, InvalidInputError
from hqueue.aio import Client
from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue_workers.console.examination import Examination
from hqueue_workers.console.gate import SESSION, read_form
from hqueue_workers.console.history import History
from hqueue_workers.console.metrics import ConsoleMetrics
from hqueue_workers.console.protocol import CALLER
from hqueue_workers.console.rendering import Renderer
from hqueue_workers.console.rights import Caller, Rights
from hqueue_workers.console.streaming import Streams

__all__ = [
    "Context",
    "Page",
    "answering",
    "caller_of",
    "go_on",
    "needed",
    "partitions_in",
    "whole_field",
]

FIELD_LENGTH_MAX = 1_000
PARTITION_MAX = 32_766


@dataclasses.dataclass(frozen=True)
class Context:
    """What the console's pages share."""

    client: Client
    rights: Rights
    renderer: Renderer
    history: History
    streams: Streams
    examination: Examination
    metrics: ConsoleMetrics
    searches: asyncio.Semaphore
    """Bounds the searches at a time: each holds what it has read."""
    downloads: asyncio.Semaphore
    """Bounds the downloads at a time, likewise."""

    async def form(self, request: Request) -> dict[str, str]:
        """The fields of a form, whose token is that of the browser's session.

        Raises:
            InvalidInputError: as `read_form`.
            NotAllowedError: the form is not of this session.
        """
        fields = await read_form(request.receive)
        self.renderer.tokens.check(request.scope.get(SESSION), fields.pop("token", None))
        return fields


Page = Callable[[Context, Request], Awaitable[Response]]


def answering(context: Context, path: str, page: Page) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that shows a page, or the page of the error that it raises.

    Args:
        context: what the pages share.
        path: where the page is, for the metrics.
        page: the page.
    """

    async def endpoint(request: Request) -> Response:
        began_ms, status = SYSTEM_CLOCK.monotonic_ms(), 500
        try:
            answer = await answered(request)
            status = answer.status_code
        except asyncio.CancelledError:
            status = 503  # The gate abandons requests that take too long.
            raise
        finally:
            took_s = (SYSTEM_CLOCK.monotonic_ms() - began_ms) / 1e3
            context.metrics.answered(path, status, took_s)
        return answer

    async def answered(request: Request) -> Response:
        try:
            return await page(context, request)
        except HQueueError as exc:
            return context.renderer.error(request, exc)
        except asyncio.TimeoutError:
            error = StoreUnavailableError(
                "the servers did not answer in time: see the page Health, and try again",
                outcome=Outcome.UNKNOWN,
            )
            return context.renderer.error(request, error)

    return endpoint


def caller_of(request: Request) -> Caller:
    """Who makes a request."""
    caller: Caller = request.scope[CALLER]
    return caller


def whole_field(text: str, name: str, low: int, high: int) -> int:
    """The number in a field.

    Raises:
        InvalidInputError: it is not a whole number in this range.
    """
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) < 10) or not (
        low <= int(stripped) <= high
    ):
        raise InvalidInputError(
            f"{name} must be a whole number from {low} to {high}", given=text[:80]
        )
    return int(stripped)


def needed(fields: Mapping[str, str], name: str) -> str:
    """A field that must be given.

    Raises:
        InvalidInputError: it is missing, empty or too long.
    """
    text = fields.get(name, "")
    if not text.strip() or len(text) > FIELD_LENGTH_MAX:
        raise InvalidInputError(
            f"the field {name} must have a text of at most {FIELD_LENGTH_MAX:,} characters",
            field=name,
        )
    return text


def partitions_in(fields: Mapping[str, str]) -> list[int] | None:
    """The partition that a form names; None for all.

    Raises:
        InvalidInputError: it is not a partition.
    """
    text = fields.get("partition", "").strip()
    return [whole_field(text, "the partition", 0, PARTITION_MAX)] if text else None


def go_on(address: str) -> Response:
    """Send the browser from a form to a page."""
    return RedirectResponse(address, 303)
