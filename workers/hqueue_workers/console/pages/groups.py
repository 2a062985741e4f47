"""Pages of groups: the list, one group with its lag over time, and its reset."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.requests import Request
from starlette.responses import Response

from hqueue.errors import GroupNotFoundError
from hqueue.position import START_HELP, check_start
from hqueue.texts.questions import delayed_in, overwrite_offsets
from hqueue_workers.console.context import Context, caller_of, go_on, needed, partitions_in
from hqueue_workers.console.history import GROUP
from hqueue_workers.console.rendering import query

__all__ = ["reset_group", "show_group", "show_groups"]

GROUPS_MAX = 500
PARTITIONS_MAX = 1_000
READ_S_MAX = 20.0


async def show_groups(context: Context, request: Request) -> Response:
    """List the groups whose queues the caller may see."""
    caller = caller_of(request)
    wanted = request.query_params.get("name", "")[:200]
    listed = await asyncio.wait_for(context.client.list_groups(), READ_S_MAX)
    rows = []
    for each in listed:
        queues = [queue for queue in each.queues if context.rights.sees(caller, queue)]
        if wanted in each.group and (queues or not each.queues):
            series = [(queue, context.history.series(GROUP, each.group, queue)) for queue in queues]
            rows.append((each, series))
    return context.renderer.page(
        request, "groups.html", rows=rows[:GROUPS_MAX], total=len(rows), wanted=wanted
    )


async def show_group(context: Context, request: Request) -> Response:
    """Show a group: its members, and its offset and lag in each partition."""
    caller = caller_of(request)
    group, queue = needed(request.query_params, "group"), request.query_params.get("queue")
    if queue:
        context.rights.check_sees(caller, queue)
    described = await asyncio.wait_for(
        context.client.describe_group(group, queue=queue or None), READ_S_MAX
    )
    partitions = [each for each in described.partitions if context.rights.sees(caller, each.queue)]
    queues = list(dict.fromkeys(each.queue for each in partitions))
    members = {
        member: sorted(each for each in streams if context.rights.sees(caller, each))
        for member, streams in described.members.items()
    }
    return context.renderer.page(
        request,
        "group.html",
        group=group,
        kind=described.kind,
        members=members,
        partitions=partitions[:PARTITIONS_MAX],
        total=len(partitions),
        queues=[
            (
                each,
                context.history.series(GROUP, group, each),
                context.rights.may_change(caller, each, group),
            )
            for each in queues
        ],
        start_help=START_HELP,
        done=request.query_params.get("done"),
    )


async def reset_group(context: Context, request: Request) -> Response:
    """Set a group's offsets in a queue, after the question that ``hqueue groups reset`` asks."""
    caller, fields = caller_of(request), await context.form(request)
    group, queue, to = (needed(fields, name) for name in ("group", "queue", "to"))
    context.rights.check_change(caller, "reset-group", queue, group)
    start, partitions = check_start(to.strip()), partitions_in(fields)
    back = query("/groups/view", group=group)
    if fields.get("confirmed") != "yes":
        # A time before now means the same when it is confirmed.
        fields["to"] = to if isinstance(start, str) else str(start)
        delayed = 0
        with contextlib.suppress(GroupNotFoundError):
            described = await context.client.describe_group(group, queue=queue)
            delayed = delayed_in(described, queue, partitions)
        return context.renderer.question(
            request,
            overwrite_offsets(group, queue, delayed),
            f"Partitions: {fields.get('partition') or 'all'}. The group continues at {to.strip()}.",
            fields,
            back,
        )
    with context.rights.changing(caller, "reset-group", queue=queue, name=group, to=str(start)):
        await context.client.reset_group(group, queue, start, partitions=partitions)
    return go_on(query("/groups/view", group=group, done="reset"))
