"""Serves the metrics of ``hqueue work``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from hqueue import __version__
from hqueue.rpc.pages import PROMETHEUS_TEXT, Answer, HealthServer
from hqueue.runtime.extras import needing

if TYPE_CHECKING:
    from hqueue.metrics.work import WorkMetrics

__all__ = ["serving_metrics"]


@contextlib.asynccontextmanager
async def serving_metrics(
    queue: str, group: str, host: str, port: int | None
) -> AsyncIterator[WorkMetrics | None]:
    """A block in which the process serves its metrics over HTTP. Yields None if there is no port.

    Args:
        queue, group: what the process works on.
        host: the address to listen on.
        port: the port; None for no metrics.

    Raises:
        InvalidInputError: ``prometheus_client`` is not installed.
        SettingsError: this process can't listen on the address.
    """
    if port is None:
        yield None
        return
    with needing("metrics", "prometheus_client", "prometheus_client"):
        from hqueue.metrics.work import WorkMetrics  # noqa: PLC0415  (an extra)
    metrics = WorkMetrics(queue, group, __version__)

    async def page() -> Answer:
        body = await asyncio.get_running_loop().run_in_executor(None, metrics.page)
        return Answer(200, PROMETHEUS_TEXT, body)

    server = HealthServer({"/metrics": page})
    server.listen(host, port)
    try:
        yield metrics
    finally:
        server.close()
