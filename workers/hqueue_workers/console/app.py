"""The console as an application: which page is where."""

from __future__ import annotations

import importlib.resources

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from hqueue_workers.console.context import Context, Page, answering
from hqueue_workers.console.metrics import OTHER
from hqueue_workers.console.pages import (
    dead_letters,
    groups,
    health,
    hubs,
    messages,
    queues,
    subscribers,
    tail,
)

__all__ = ["make_app"]

PAGES: dict[str, Page] = {
    "/queues": queues.show_queues,
    "/queues/{queue}": queues.show_queue,
    "/queues/{queue}/messages": messages.show_messages,
    "/queues/{queue}/messages/{partition}/{id}": messages.show_message,
    "/queues/{queue}/messages/{partition}/{id}/value": messages.download_value,
    "/queues/{queue}/tail": tail.show_tail,
    "/queues/{queue}/tail/stream": tail.stream_tail,
    "/queues/{queue}/dead-letters": dead_letters.show_dead_letters,
    "/queues/{queue}/topics": hubs.show_topics,
    "/queues/{queue}/topics/view": hubs.show_topic,
    "/groups": groups.show_groups,
    "/groups/view": groups.show_group,
    "/subscribers": subscribers.show_subscribers,
    "/hubs": hubs.show_hubs,
    "/health": health.show_health,
}
"""The pages, by their paths."""

CHANGES: dict[str, Page] = {
    "/queues/{queue}/dead-letters/change": dead_letters.change_dead_letters,
    "/groups/reset": groups.reset_group,
    "/subscribers/seek": subscribers.seek_subscriber,
    "/health/check": health.check_health,
}
"""The paths to which forms are sent, and what answers there."""


async def _to_queues(request: Request) -> Response:
    return RedirectResponse("/queues", 303)


def make_app(context: Context) -> Starlette:
    """Make the application.

    Args:
        context: what the pages share.
    """

    async def missing(request: Request, error: Exception) -> Response:
        context.metrics.answered(OTHER, 404, 0.0)
        text = "The console has no such page."
        return context.renderer.page(request, "error.html", 404, code=404, text=text, again=False)

    static = importlib.resources.files("hqueue_workers.console") / "static"
    return Starlette(
        routes=[
            Route("/", _to_queues),
            *(Route(path, answering(context, path, page)) for path, page in PAGES.items()),
            *(
                Route(path, answering(context, path, page), methods=["POST"])
                for path, page in CHANGES.items()
            ),
            Mount("/static", StaticFiles(directory=str(static))),
        ],
        exception_handlers={404: missing, 405: missing},
    )
