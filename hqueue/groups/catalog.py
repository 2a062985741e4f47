"""Which queues there are for a group, with their partitions and where these are served."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from hqueue.errors import ClosedError, HQueueError, InvalidInputError
from hqueue.handle import Cluster
from hqueue.log.table_ports import PartitionLocation
from hqueue.metadata import PartitionKey
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.job import Job
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.attributes import QueueDescription, check_queue_name
from hqueue.settings.kinds import listed

__all__ = ["Catalog", "QueueCatalog", "Selection"]

logger = Log(__name__)

RETRY_MS = 1_000


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which queues a consumer wants: these, or all whose whole names fit a pattern."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None

    @classmethod
    def chosen(
        cls, queues: str | Iterable[str] | None, pattern: str | re.Pattern[str] | None
    ) -> Selection:
        """What a program names: queues, or a pattern.

        Raises:
            InvalidInputError: it is neither or both, no queue, or no pattern.
        """
        if (queues is None) == (pattern is None):
            raise InvalidInputError("subscribe takes either queues' names or a pattern")
        if pattern is not None:
            try:
                return cls(pattern=re.compile(pattern))
            except (re.error, TypeError) as exc:
                raise InvalidInputError(
                    "the pattern is not a regular expression", pattern=pattern, reason=str(exc)
                ) from exc
        names = frozenset([queues] if isinstance(queues, str) else listed(queues or (), "queues"))
        if not names:
            raise InvalidInputError("subscribe to at least one queue")
        return cls(frozenset(map(check_queue_name, names)))

    def of(self, queues: Collection[str]) -> frozenset[str]:
        """Those of these queues that are wanted."""
        if self.pattern is None:
            return self.names.intersection(queues)
        return frozenset(filter(self.pattern.fullmatch, queues))


@dataclasses.dataclass(frozen=True)
class Catalog:
    """What was found at one time."""

    selected: frozenset[str]
    """The queues that are wanted, and are there."""
    missing: frozenset[str]
    """Those that are wanted by name, and aren't there."""
    partitions: Mapping[PartitionKey, str | None]
    """Every partition of these, and of the queues that other members consume, with its host; None
    where that could not be found out."""


class QueueCatalog(Stepwise):
    """Looks again and again which queues there are. Thread-safe.

    It looks when what is wanted changes, when it is asked to, and when what it knows is old: that
    takes a request for all queues, and one a queue for the hosts.

    Args:
        cluster: where the queues are.
        on_change: work in the background with what was found, if it is something else than
            before; and a little later again, if it returns false: that is not known yet.
        age_ms_max: how old that gets.
        loop: looks again and again; the process's if None.
        clock: where time comes from.
    """

    def __init__(
        self,
        cluster: Cluster,
        on_change: Callable[[Catalog], Work[Any, bool]],
        age_ms_max: float,
        loop: BackgroundLoop | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._cluster = cluster
        self._on_change = on_change
        self._age_ms_max = age_ms_max
        self._clock = clock
        self._selection = Selection()
        self._others: frozenset[str] = frozenset()
        self._last: Catalog | None = None
        self._lock = threading.RLock()
        self._due_ms = float("inf")
        self._closed = False
        self._faults = FaultLog(logger, clock)
        self._looking = Job(self._look_if_due.in_loop, loop=loop)

    @stepwise
    def select(self, selection: Selection) -> Work[Any, Catalog]:
        """Look for these queues from now on; what is there of them.

        Raises:
            StoreUnavailableError: HBase stayed away for ``operation_timeout_ms``.
        """
        with self._lock:
            self._selection, self._last = selection, None
        found = yield from self._look(selection, self._others)
        with self._lock:
            if self._selection is selection:
                self._last = found
                self._due_ms = self._clock.monotonic_ms() + self._age_ms_max
                self._looking.ask()
        return found

    def include(self, others: frozenset[str]) -> None:
        """Look for these queues, too, which other members consume."""
        with self._lock:
            more = not others <= self._others | self._selection.names
            self._others = others
            if more:
                self._look_soon()

    def refresh(self) -> None:
        """Look again soon."""
        with self._lock:
            self._look_soon()

    def close(self) -> None:
        """Look no more."""
        self._closed = True
        self._looking.close()

    def _look_soon(self) -> None:
        self._due_ms = self._clock.monotonic_ms()
        self._looking.ask()

    @stepwise
    def _look_if_due(self) -> Work[Any, float]:
        """Look, if it is time; when it is time again."""
        with self._lock:
            if self._due_ms > self._clock.monotonic_ms():
                return self._left_ms()
            selection, others = self._selection, self._others
            self._due_ms = self._clock.monotonic_ms() + self._age_ms_max
        try:
            found = yield from self._look(selection, others)
        except ClosedError:
            raise
        except HQueueError as exc:
            self._faults.met(
                "queues", ("the queues that match a group's pattern can't be listed now: %s"), exc
            )
            self._look_again()
            return self._left_ms()
        self._faults.over("queues", "the queues that match a group's pattern can be listed again")
        with self._lock:
            if self._closed or self._selection is not selection or found == self._last:
                return self._left_ms()
            self._last = found
        taken = False
        try:
            taken = yield from self._on_change(found)
        finally:
            if not taken:
                self._look_again(untold=found)
        return self._left_ms()

    def _left_ms(self) -> float:
        return max(0.0, self._due_ms - self._clock.monotonic_ms())

    def _look_again(self, untold: Catalog | None = None) -> None:
        """Look again a little later."""
        with self._lock:
            if self._last is untold:
                self._last = None
            self._due_ms = self._clock.monotonic_ms() + min(RETRY_MS, self._age_ms_max)

    def _look(self, selection: Selection, others: Collection[str]) -> Work[Any, Catalog]:
        queues: Sequence[QueueDescription] = yield self._cluster.tables.list.asked()
        there = {each.name: each.partitions for each in queues}
        selected = selection.of(there)
        partitions: dict[PartitionKey, str | None] = {}
        for queue in sorted(selected | there.keys() & set(others)):
            keys = [PartitionKey(queue, number) for number in range(there[queue])]
            partitions.update(dict.fromkeys(keys))
            try:
                located: Sequence[PartitionLocation]
                located = yield self._cluster.locate.asked(queue, there[queue])
                for each in located:
                    partitions[PartitionKey(queue, each.partition)] = each.host
            except ClosedError:
                raise
            except HQueueError as exc:
                # It makes the assignment no less even.
                logger.debug("can't find out now which server has a queue's partitions: %s", exc)
        return Catalog(selected, selection.names - there.keys(), partitions)
