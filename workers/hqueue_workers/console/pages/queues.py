"""Pages of queues: the list, and one queue with its partitions and readers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from hqueue import HQueueError, SettingsError
from hqueue.typing import RegionSize
from hqueue_workers.console.context import Context, caller_of
from hqueue_workers.console.history import GROUP, KEPT, QUEUE, SIZE, SUBSCRIBER

__all__ = ["show_queue", "show_queues"]

QUEUES_MAX = 1_000
PARTITIONS_MAX = 512
READ_S_MAX = 10.0


class PartitionSize(NamedTuple):
    """How much room the regions take that have a partition's rows."""

    stored_bytes: int
    memory_bytes: int
    others: str
    """The partitions from first to last that share the region; empty if it has this one alone."""


def sizes_by_partition(
    regions: Iterable[RegionSize], partitions: Sequence[int]
) -> Mapping[int, PartitionSize]:
    """The sizes of these partitions. Partitions that share a region each have its size."""
    sizes: dict[int, PartitionSize] = {}
    for each in regions:
        shared = each.last_partition > each.first_partition
        others = f"{each.first_partition} to {each.last_partition}" if shared else ""
        for partition in range(each.first_partition, each.last_partition + 1):
            if partition in partitions:
                stored, held, _ = sizes.get(partition, (0, 0, ""))
                stored, held = stored + each.stored_bytes, held + each.memory_bytes
                sizes[partition] = PartitionSize(stored, held, others)
    return sizes


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
            context.history.series(SIZE, each.name),
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
    sizes: Mapping[int, PartitionSize] = {}
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
    unsized = ""
    try:
        measured = await asyncio.wait_for(client.region_sizes(name), READ_S_MAX)
        sizes = sizes_by_partition(measured, partitions)
    except SettingsError:
        unsized = "HBase's gateways do not tell sizes: let the console connect natively."
    except (HQueueError, asyncio.TimeoutError) as exc:
        late = "the region servers did not answer in time"
        reason = exc.text if isinstance(exc, HQueueError) else late
        unsized = f"The sizes are not known now: {reason}."
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
        sizes=sizes,
        unsized="" if description.enabled is False else unsized,
        size=context.history.series(SIZE, name),
        readers=readers,
        problem=problem,
        series=context.history.series(QUEUE, name),
    )
