"""Pages of subscribers: the list with their lag over time, and the move of checkpoints."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from hqueue import HQueueError
from hqueue.position import START_HELP, check_start
from hqueue.texts.questions import move_checkpoints
from hqueue_workers.console.context import Context, caller_of, go_on, needed, partitions_in
from hqueue_workers.console.history import SUBSCRIBER
from hqueue_workers.console.rendering import query

__all__ = ["seek_subscriber", "show_subscribers"]

QUEUES_MAX = 50
ROWS_MAX = 1_000
READ_S_MAX = 20.0


async def show_subscribers(context: Context, request: Request) -> Response:
    """List the subscribers of a queue, or of the first queues that the caller may see."""
    caller, client = caller_of(request), context.client
    chosen = request.query_params.get("queue", "").strip()[:255]
    if chosen:
        context.rights.check_sees(caller, chosen)
        names = [chosen]
    else:
        listed = await asyncio.wait_for(client.list_queues(), READ_S_MAX)
        names = [each.name for each in listed if context.rights.sees(caller, each.name)]
    rows, problems = [], []
    ends_s = asyncio.get_running_loop().time() + READ_S_MAX
    for name in names[:QUEUES_MAX]:
        left_s = ends_s - asyncio.get_running_loop().time()
        try:
            states = await asyncio.wait_for(client.list_subscribers(name), max(0.01, left_s))
        except HQueueError as exc:
            if chosen:
                raise
            problems.append(f"{name}: {exc.text}")
            continue
        except asyncio.TimeoutError:
            problems.append(f"{name}: the console could not read its subscribers in time")
            break
        rows += [(name, state) for state in states]
    readers = dict.fromkeys((queue, state.subscriber) for queue, state in rows)
    return context.renderer.page(
        request,
        "subscribers.html",
        rows=rows[:ROWS_MAX],
        total=len(rows),
        problems=problems[:10],
        left_out=max(0, len(names) - QUEUES_MAX),
        readers=[
            (
                queue,
                name,
                context.history.series(SUBSCRIBER, name, queue),
                context.rights.may_change(caller, queue, name),
            )
            for queue, name in list(readers)[:ROWS_MAX]
        ],
        chosen=chosen,
        start_help=START_HELP,
        done=request.query_params.get("done"),
    )


async def seek_subscriber(context: Context, request: Request) -> Response:
    """Move a subscriber's checkpoints, after a question."""
    caller, fields = caller_of(request), await context.form(request)
    name, queue, to = (needed(fields, field) for field in ("subscriber", "queue", "to"))
    context.rights.check_change(caller, "seek-subscriber", queue, name)
    start, partitions = check_start(to.strip()), partitions_in(fields)
    back = query("/subscribers", queue=queue)
    if fields.get("confirmed") != "yes":
        fields["to"] = to if isinstance(start, str) else str(start)
        return context.renderer.question(
            request,
            move_checkpoints(name, queue),
            f"Partitions: {fields.get('partition') or 'all'}. It continues at {to.strip()}.",
            fields,
            back,
        )
    with context.rights.changing(caller, "seek-subscriber", queue=queue, name=name, to=str(start)):
        await context.client.seek_subscriber(queue, name, start, partitions=partitions)
    return go_on(query("/subscribers", queue=queue, done="moved"))
