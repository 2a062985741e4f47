"""The page that follows a queue's new messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response

from hqueue import ReceivedMessage, Scan
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.settings.names import EVERYBODY
from hqueue_workers.console import reading
from hqueue_workers.console.context import Context, caller_of
from hqueue_workers.console.pages.messages import chosen_filter, chosen_partition
from hqueue_workers.console.streaming import EventStream, event

__all__ = ["show_tail", "stream_tail"]

ROWS_PER_SECOND_MAX = 20
"""Further messages of a second are counted, and not shown."""
FOLLOWED_BYTES = 2 * 1024 * 1024


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
    whose = context.streams.begin(caller)

    async def events() -> AsyncGenerator[bytes, None]:
        second, shown, left_out = 0.0, 0, 0
        async with await context.client.queue(name) as queue:
            partitions = reading.check_partitions(queue, partition)
            offsets = await queue.offsets([*partitions])
            topics = [wanted.topic] if wanted.topic else []
            scans = {each.partition: Scan(each.end, topics=topics) for each in offsets}
            scanner = queue.combined_partition_scanner(scans, follow=True, bytes_max=FOLLOWED_BYTES)
            async with scanner:
                async for message in scanner:
                    if not wanted.lets_through(message):
                        continue
                    now_s = SYSTEM_CLOCK.monotonic_ms() / 1e3
                    if now_s - second >= 1:
                        if left_out:
                            yield event("left-out", f"{left_out:,} messages were not shown.")
                        second, shown, left_out = now_s, 0, 0
                    if shown >= ROWS_PER_SECOND_MAX:
                        left_out += 1
                        continue
                    shown += 1
                    yield event("row", row(message))

    def row(message: ReceivedMessage) -> str:
        return context.renderer.fragment("row.html", queue=name, message=message)

    return EventStream(events, context.streams.stopping, lambda: context.streams.end(whose))
