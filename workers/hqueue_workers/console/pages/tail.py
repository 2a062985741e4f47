"""The page that follows a queue's new messages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from hqueue.doctor.findings import said
from hqueue.errors import BufferFullError
from hqueue.settings.names import EVERYBODY
from hqueue_workers.console.context import Context, caller_of
from hqueue_workers.console.following import ROWS_PER_SECOND_MAX, Following, parse_reached
from hqueue_workers.console.pages.messages import chosen_filter, chosen_partition
from hqueue_workers.console.streaming import EndedStream, EventStream

__all__ = ["show_tail", "stream_tail"]


async def show_tail(context: Context, request: Request) -> Response:
    """Show the page, which begins the stream."""
    name = request.path_params["queue"]
    wanted = chosen_filter(request)
    context.rights.check_sees(caller_of(request), name, wanted.topic or EVERYBODY)
    async with await context.client.queue(name) as queue:
        partitions = queue.partitions
    return context.renderer.page(
        request,
        "tail.html",
        queue=name,
        partitions=partitions,
        partition=chosen_partition(request),
        wanted=wanted,
        rows_per_second=ROWS_PER_SECOND_MAX,
    )


async def stream_tail(context: Context, request: Request) -> Response:
    """Stream the messages that are written from now on, as rows of a table."""
    name, caller = request.path_params["queue"], caller_of(request)
    wanted, partition = chosen_filter(request), chosen_partition(request)
    context.rights.check_sees(caller, name, wanted.topic or EVERYBODY)
    # The browser itself sends the header, and a page that had to open a new stream the parameter.
    given = request.headers.get("last-event-id") or request.query_params.get("reached", "")
    following = Following(
        context.client,
        context.renderer,
        name,
        partition=partition,
        wanted=wanted,
        reached=parse_reached(given),
    )
    try:
        whose = context.streams.begin(caller)
    except BufferFullError as exc:
        return EndedStream(said(exc))  # A browser shows no other answer to a stream.
    return EventStream(
        following.events,
        following.pending,
        context.streams.stopping,
        lambda: context.streams.end(whose),
    )
