"""Pages of queues: the list, and one queue with its partitions and readers."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from hqueue import HQueueError
from hqueue_workers.console.context import Context, caller_of
from hqueue_workers.console.history import GROUP, KEPT, QUEUE, SUBSCRIBER

__all__ = ["show_queue", "show_queues"]

QUEUES_MAX = 1_000
PARTITIONS_MAX = 512
READ_S_MAX = 10.0


async def show_queues(context: Context, request: Request) -> Response:
    """List the queues that the caller may see."""
    caller = caller_of(request)
    wanted = request.query_params.get("name", "")[:200]
    found = await asyncio.wait_for(context.client.list_queues(), READ_S_MAX)
    seen = [
        each for each in found if context.rights.sees(caller, each.name) and wanted in each.name
    ]
    rows = [
        (
            each,
            context.history.series(QUEUE, each.name),
            context.history.series(KEPT, each.name),
        )
        for each in seen[:QUEUES_MAX]
    ]
    return context.renderer.page(request, "queues.html", rows=rows, total=len(seen), wanted=wanted)


async def show_queue(context: Context, request: Request) -> Response:
    """Show a queue: its attributes, its partitions and where they lie, and who reads it."""
    name = request.path_params["queue"]
    context.rights.check_sees(caller_of(request), name)
    client = context.client
    description = await asyncio.wait_for(client.describe_queue(name), READ_S_MAX)
    partitions = range(min(description.partitions, PARTITIONS_MAX))
    offsets, places = {}, {}
    problem = "the queue is disabled: its messages stay, and can be read when it is enabled"
    if description.enabled is not False:
        problem = ""
        try:
            async with await client.queue(name) as queue:
                found = await asyncio.wait_for(queue.offsets(partitions), READ_S_MAX)
            offsets = {each.partition: each for each in found}
        except (HQueueError, asyncio.TimeoutError) as exc:
            late = "the offsets did not arrive in time: load the page again"
            problem = exc.text if isinstance(exc, HQueueError) else late
    try:
        located = await asyncio.wait_for(client.locations(name), READ_S_MAX)
        places = {each.partition: each for each in located}
    except (HQueueError, asyncio.TimeoutError):
        problem = (
            problem or "the console did not find the servers of the partitions: see the page Health"
        )
    readers = [
        (kind, series_name[1], series)
        for kind in (GROUP, SUBSCRIBER)
        for series_name, series in context.history.of_queue(kind, name)
    ]
    return context.renderer.page(
        request,
        "queue.html",
        queue=description,
        partitions=partitions,
        offsets=offsets,
        places=places,
        readers=readers,
        problem=problem,
        series=context.history.series(QUEUE, name),
    )
