"""Measures rates and lags now and then, and keeps the newest measurements in memory."""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

from hqueue import HQueueError, SettingsError
from hqueue.aio import Client
from hqueue.errors import RequestRefusedError
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import SeldomLog

__all__ = [
    "GROUP",
    "KEPT",
    "QUEUE",
    "SIZE",
    "SUBSCRIBER",
    "History",
    "Sample",
    "Series",
    "growth",
]

logger = Log(__name__)

SAMPLES_MAX = 180
SERIES_MAX = 2_000
"""Of all queues, groups and subscribers. The history of further ones is not kept."""
AT_ONCE = 4
SIZES_EVERY = 6
"""Sizes grow slowly: they are measured in one of so many rounds."""
MEASURE_S_MAX = 15.0
"""A queue, a group or a queue's subscribers that take longer are left out this time."""

QUEUE, KEPT, SIZE, GROUP, SUBSCRIBER = "queue", "kept", "size", "group", "subscriber"

Name = tuple[str, ...]
"""What is measured: `QUEUE`, `KEPT` or `SIZE`, and a queue; `GROUP`, the group and the queue; or
`SUBSCRIBER`, the subscriber and the queue."""


_Result = TypeVar("_Result")


class Sample(NamedTuple):
    """A measurement."""

    at_s: float
    """The time by a monotonic clock."""
    value: float
    """How many messages a queue ever had or has now, how many bytes it takes, or a reader's lag."""


class Series:
    """The newest measurements of one thing."""

    def __init__(self) -> None:
        self.samples: collections.deque[Sample] = collections.deque(maxlen=SAMPLES_MAX)

    @property
    def rate(self) -> float | None:
        """How much the value grew in a second over the last minute; None without two samples."""
        newest = self.samples[-1] if self.samples else None
        earlier = [
            each for each in self.samples if newest is not None and newest.at_s - each.at_s <= 60
        ]
        if newest is None or len(earlier) < 2:
            return None
        return max(0.0, (newest.value - earlier[0].value) / (newest.at_s - earlier[0].at_s))


def growth(series: Series | None) -> Series | None:
    """How much a series grew in each second, from one measurement to the next."""
    if series is None:
        return None
    grown = Series()
    for earlier, later in itertools.pairwise(series.samples):
        seconds = max(later.at_s - earlier.at_s, 1e-3)
        grown.samples.append(Sample(later.at_s, max(0, later.value - earlier.value) / seconds))
    return grown


class History:
    """Measures all queues, groups and subscribers, one round after the other.

    Args:
        client: the connection.
        every_ms: the time between the beginnings of two rounds.
    """

    def __init__(self, client: Client, every_ms: float) -> None:
        self._client = client
        self._every_s = every_ms / 1e3
        self._series: dict[Name, Series] = {}
        self._seldom = SeldomLog(logger)
        self.left_out = 0
        """How many queues, groups and subscribers the last round could not measure."""

    def series(self, *name: str) -> Series | None:
        """The measurements of one thing; None if it has none."""
        return self._series.get(name)

    def of_queue(self, kind: str, queue: str) -> list[tuple[Name, Series]]:
        """The measurements of the groups or subscribers of a queue, by name."""
        return sorted(
            (name, each)
            for name, each in self._series.items()
            if name[0] == kind and name[-1] == queue
        )

    def newest(self, kind: str) -> list[tuple[str, float]]:
        """The newest measurement of each queue, of `KEPT` or `SIZE`."""
        measured = list(self._series.items())  # Another thread reads this.
        return [(name[1], each.samples[-1].value) for name, each in measured if name[0] == kind]

    async def run(self) -> None:
        """Measure until this is cancelled."""
        for number in itertools.count():
            began_s = SYSTEM_CLOCK.monotonic_ms() / 1e3
            await self.measure(sizes=number % SIZES_EVERY == 0)
            took_s = SYSTEM_CLOCK.monotonic_ms() / 1e3 - began_s
            await asyncio.sleep(max(1.0, self._every_s - took_s))

    async def measure(self, *, sizes: bool = True) -> None:
        """Measure everything once. A queue or a reader that can't be read is left out.

        Args:
            sizes: whether to measure the queues' sizes, too.
        """
        self.left_out = 0
        seen: set[Name] = set()
        names = await self._bounded(self._queues()) or []
        groups = await self._bounded(self._groups()) or []
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(measuring: Coroutine[Any, Any, dict[Name, int]]) -> None:
            async with turns:
                for name, value in (await self._bounded(measuring) or {}).items():
                    if self._add(name, value):
                        seen.add(name)

        await asyncio.gather(
            *(one(self._size_of(each)) for each in names[: SERIES_MAX if sizes else 0]),
            *(one(self._of_queue(each)) for each in names[:SERIES_MAX]),
            *(one(self._of_subscribers(each)) for each in names[:SERIES_MAX]),
            *(one(self._of_group(each)) for each in groups[:SERIES_MAX]),
        )
        if names or groups:
            self._forget(seen)

    def _add(self, name: Name, value: int) -> bool:
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= SERIES_MAX:
                self.left_out += 1
                return False
            series = self._series[name] = Series()
        series.samples.append(Sample(SYSTEM_CLOCK.monotonic_ms() / 1e3, value))
        return True

    def _forget(self, seen: Iterable[Name]) -> None:
        """Forget what has not been measured for as long as the history reaches."""
        oldest_s = SYSTEM_CLOCK.monotonic_ms() / 1e3 - SAMPLES_MAX * self._every_s
        for name in self._series.keys() - set(seen):
            if self._series[name].samples[-1].at_s < oldest_s:
                del self._series[name]

    async def _bounded(self, work: Coroutine[Any, Any, _Result]) -> _Result | None:
        try:
            return await asyncio.wait_for(work, MEASURE_S_MAX)
        except (HQueueError, asyncio.TimeoutError) as exc:
            self.left_out += 1
            self._seldom.info("the console could not measure: %s", exc or "it took too long")
            return None

    async def _queues(self) -> list[str]:
        return [each.name for each in await self._client.list_queues() if each.enabled is not False]

    async def _groups(self) -> list[str]:
        return [each.group for each in await self._client.list_groups()]

    async def _of_queue(self, name: str) -> dict[Name, int]:
        async with await self._client.queue(name) as queue:
            offsets = await queue.offsets()
        kept = sum(each.end_ordinal - each.beginning_ordinal for each in offsets)
        return {(QUEUE, name): sum(each.count for each in offsets), (KEPT, name): kept}

    async def _size_of(self, name: str) -> dict[Name, int]:
        try:
            regions = await self._client.region_sizes(name)
        except (SettingsError, RequestRefusedError):
            return {}  # Gateways can't say it, or HBase does not tell this client.
        return {(SIZE, name): sum(each.stored_bytes + each.memory_bytes for each in regions)}

    async def _of_subscribers(self, name: str) -> dict[Name, int]:
        lags: collections.Counter[Name] = collections.Counter()
        for each in await self._client.list_subscribers(name):
            lags[SUBSCRIBER, each.subscriber, name] += each.lag or 0
        return dict(lags)

    async def _of_group(self, group: str) -> dict[Name, int]:
        lags: collections.Counter[Name] = collections.Counter()
        for each in (await self._client.describe_group(group)).partitions:
            lags[GROUP, group, each.queue] += 0 if each.lag is None else each.lag.messages
        return dict(lags)
