"""Pages of hubs and their topics."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from hqueue import HQueueError, InvalidInputError
from hqueue.aio import TopicMetadata
from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.managers import TopicPersistenceInfo
from hqueue_workers.console.context import Context, caller_of, needed

__all__ = ["show_hubs", "show_topic", "show_topics"]

QUEUES_MAX = 50
TOPICS_MAX = 500
READ_S_MAX = 10.0


async def show_hubs(context: Context, request: Request) -> Response:
    """List the hubs that are available, of the queues that the caller may see."""
    caller, client = caller_of(request), context.client
    listed = await asyncio.wait_for(client.list_queues(), READ_S_MAX)
    names = [each.name for each in listed if context.rights.sees(caller, each.name)]
    rows, problems = [], []
    ends_s = asyncio.get_running_loop().time() + READ_S_MAX
    for name in names[:QUEUES_MAX]:
        left_s = ends_s - asyncio.get_running_loop().time()
        try:
            async with client.topic_metadata(name) as metadata:
                found = await asyncio.wait_for(metadata.hubs.list(), max(0.01, left_s))
        except HQueueError as exc:
            problems.append(f"{name}: {exc.text}")
        except asyncio.TimeoutError:
            problems.append(f"{name}: the console could not read its hubs in time")
            break
        else:
            rows += [(name, hub) for _, hub in sorted(found.items())]
    return context.renderer.page(
        request,
        "hubs.html",
        rows=rows,
        names=names[:QUEUES_MAX],
        left_out=max(0, len(names) - QUEUES_MAX),
        problems=problems[:10],
    )


async def show_topics(context: Context, request: Request) -> Response:
    """List the topics of a queue that hubs own."""
    name, caller = request.path_params["queue"], caller_of(request)
    context.rights.check_sees(caller, name)
    await asyncio.wait_for(context.client.describe_queue(name), READ_S_MAX)
    rows: list[tuple[str, int, object]] = []
    unreadable: list[str] = []

    async def read(metadata: TopicMetadata) -> bool:
        async for entry in metadata.entries(["persistence"]):
            if entry.subject is None or isinstance(entry.found, UnsupportedFormatError):
                unreadable.append(str(entry.found))
            elif context.rights.sees(caller, name, entry.subject.topic):
                info = entry.found.value
                assert isinstance(info, TopicPersistenceInfo)
                rows.append(
                    (
                        entry.subject.topic,
                        len(info.ranges),
                        info.ranges[-1] if info.ranges else None,
                    )
                )
            if len(rows) + len(unreadable) >= TOPICS_MAX:
                return True
        return False

    async with context.client.topic_metadata(name) as metadata:
        try:
            more = await asyncio.wait_for(read(metadata), READ_S_MAX)
        except asyncio.TimeoutError:
            more = True
    return context.renderer.page(
        request, "topics.html", queue=name, rows=rows, more=more, unreadable=unreadable[:10]
    )


async def show_topic(context: Context, request: Request) -> Response:
    """Show a topic: its owner, the ranges of the log that have its messages, its subscriptions."""
    name, caller = request.path_params["queue"], caller_of(request)
    topic = needed(request.query_params, "topic")
    context.rights.check_sees(caller, name, topic)
    return await asyncio.wait_for(_topic_page(context, request, name, topic), READ_S_MAX)


async def _topic_page(context: Context, request: Request, name: str, topic: str) -> Response:
    async with context.client.topic_metadata(name) as metadata:
        found = await metadata.persistence.read_topic_persistence_info(topic)
        owner = await metadata.ownership.read_owner_info(topic)
        subscriptions = await metadata.subscriptions.read_subscriptions(topic)
    if found is None:
        raise InvalidInputError("hubs have no topic of this name", queue=name, topic=topic)
    consumed = {
        subscriber: each.value.state.consumed
        for subscriber, each in sorted(subscriptions.items())[:TOPICS_MAX]
        if each.value.state is not None
    }
    async with await context.client.queue(name) as queue:
        lags = await queue.topic_lags(topic, {each: last + 1 for each, last in consumed.items()})
    return context.renderer.page(
        request,
        "topic.html",
        queue=name,
        topic=topic,
        owner=None if owner is None else owner.value.address,
        ranges=list(found.value.ranges)[-TOPICS_MAX:],
        consumed=consumed,
        lags=lags,
    )
