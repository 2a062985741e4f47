"""The page of the cluster's health: what is wrong, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from hqueue import HQueueError
from hqueue.aio.client import blocking_client
from hqueue.doctor import Level
from hqueue_workers.console.context import Context, go_on

__all__ = ["check_health", "show_health"]

WORKERS_MAX = 500
READ_S_MAX = 10.0


async def show_health(context: Context, request: Request) -> Response:
    """Show the findings of the last run, the workers, and what the console could not measure."""
    client, examination = blocking_client(context.client), context.examination
    workers: Mapping[str, object] = {}
    problem = ""
    try:
        reading = client.coordination.workers.list.in_loop()
        workers = await asyncio.wait_for(reading, READ_S_MAX)
    except (HQueueError, asyncio.TimeoutError) as exc:
        problem = exc.text if isinstance(exc, HQueueError) else "ZooKeeper did not answer in time"
    counts = {level: sum(each.level is level for each in examination.findings) for level in Level}
    return context.renderer.page(
        request,
        "health.html",
        examination=examination,
        counts=counts,
        levels=Level,
        workers=sorted(workers.items())[:WORKERS_MAX],
        problem=problem,
        left_out=context.history.left_out,
    )


async def check_health(context: Context, request: Request) -> Response:
    """Begin the checks. They change nothing that programs use."""
    await context.form(request)  # Its token is checked.
    context.examination.begin()
    return go_on("/health")
