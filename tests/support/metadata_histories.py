"""Many threads that change and read few records of topics' metadata, and what came of it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from hqueue import HQueueError, MessageID, Outcome, StoreUnavailableError
from hqueue.errors import MetadataError
from hqueue.metadata import Address
from hqueue.metadata.fields import FieldChange, FieldRecords, Found
from hqueue.metadata.managers import (
    HubInfo,
    LogRange,
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
    TopicPersistenceInfo,
)
from hqueue.metadata.outcomes import partly_done
from hqueue.metadata.ports import ANY, NEW, Change, Guard, Record, Records, Version
from tests.support.linearizability import SOME, History, Operation, State
from tests.support.metadata_kinds import MetadataKind
from tests.support.topic_managers import TopicManagers

__all__ = ["FaultyFields", "FaultyRecords", "Losing", "take_history"]

Answer = TypeVar("Answer")
Input = TypeVar("Input")

KEYS = ["a", "b", "c"]


def take_history(
    hubs: Sequence[TopicManagers],
    kind: MetadataKind,
    *,
    seed: int,
    threads: int = 3,
    operations: int = 60,
) -> History:
    """Let each hub's threads do random operations at once; returns what they did.

    Args:
        threads: of each hub; they share its pipelines.
        operations: of each thread.
    """
    history = History()
    numbers = itertools.count()

    workers = [
        _Worker(history, kind, hub, random.Random(f"{seed} {h} {t}"), numbers)
        for h, hub in enumerate(hubs)
        for t in range(threads)
    ]
    with ThreadPoolExecutor(len(workers)) as pool:
        for done in [pool.submit(worker.run, operations) for worker in workers]:
            done.result()
    return history


@dataclasses.dataclass
class _Worker:
    """One thread of a hub."""

    history: History
    kind: MetadataKind
    hub: TopicManagers
    chance: random.Random
    numbers: Iterator[int]
    known: dict[str, Version] = dataclasses.field(default_factory=dict)

    def run(self, operations: int) -> None:
        for _ in range(operations):
            key = self.chance.choice(KEYS)
            known = self.known.get(key, Version(0))
            version = self.chance.choice([NEW, ANY, known, known, Version(0)])
            self._do(key, version, next(self.numbers))

    def _do(self, key: str, version: Version, number: int) -> None:
        what = self.chance.choice(["read", "read", "write", "write", "write", "delete"])
        if what == "delete" and version == NEW:
            version = ANY
        call = self.history.now()
        answer: State | Version | None = None
        unknown = False
        try:
            answer = self._ask(what, key, version, number)
        except MetadataError:
            pass
        except HQueueError as exc:
            if what == "read" or exc.outcome is Outcome.NOT_APPLIED:
                return
            unknown = True
        returned = math.inf if unknown else self.history.now()
        self.history.add(
            Operation(what, key, call, returned, version, str(number), answer, unknown)
        )

    def _ask(self, what: str, key: str, version: Version, number: int) -> State | Version | None:
        if what == "delete":
            self.kind.delete(self.hub, key, version).result()
            return SOME
        if what == "write":
            written = self.kind.write(self.hub, key, _value(self.kind, number), version).result()
            self.known[key] = written
            return written
        found = self.kind.read(self.hub, key).result()
        if found is None:
            return None
        self.known[key] = found.version
        return State(str(_number(found.value)), found.version)


def _value(kind: MetadataKind, number: int) -> Any:
    if kind.name == "ownership":
        return HubInfo(Address("10.0.0.1", 7_000), f"i{number}")
    if kind.name == "persistence":
        return TopicPersistenceInfo((LogRange(0, MessageID(number)),))
    return SubscriptionData(SubscriptionPreferences(), SubscriptionState(MessageID(number)))


def _number(value: Any) -> int:
    if isinstance(value, HubInfo):
        return int(value.incarnation[1:])
    if isinstance(value, SubscriptionData):
        assert value.state is not None
        return int(value.state.consumed) >> 15
    return int(value.ranges[0].first) >> 15


LOST = 0.04
"""How many requests get lost, or their answers."""

TOGETHER_S = 1e-3
"""What changes take, so that several are made together meanwhile."""


class Losing:
    """Loses requests, and answers: of changes that are made together, those of some."""

    def __init__(self, seed: int, share: float = LOST) -> None:
        self._chance = random.Random(seed)
        self._share = share

    def call(self, operation: Callable[[], Answer]) -> Answer:
        """Do it, unless it gets lost as a whole."""
        error = self._request()
        if error is not None:
            raise error
        answer = operation()
        error = self._answer()
        if error is not None:
            raise error
        return answer

    def change(
        self,
        operation: Callable[[dict[str, Input]], Mapping[str, Answer]],
        asked: Mapping[str, Input],
    ) -> Mapping[str, Answer]:
        """Make these changes, unless they get lost, each by itself."""
        time.sleep(TOGETHER_S)
        lost = {key: error for key in asked if (error := self._request()) is not None}
        answers = operation({key: each for key, each in asked.items() if key not in lost})
        lost |= {key: error for key in answers if (error := self._answer()) is not None}
        if lost:
            raise partly_done(next(iter(lost.values())), {**answers, **lost})
        return answers

    def _request(self) -> StoreUnavailableError | None:
        return self._lose("a request was lost")

    def _answer(self) -> StoreUnavailableError | None:
        return self._lose("an answer was lost")

    def _lose(self, what: str) -> StoreUnavailableError | None:
        if self._chance.random() >= self._share / 2:
            return None
        return StoreUnavailableError(what, outcome=Outcome.UNKNOWN)


class FaultyFields:
    """`FieldRecords` that lose requests and answers."""

    def __init__(self, store: FieldRecords, seed: int) -> None:
        self._store = store
        self._losing = Losing(seed)

    def read(self, keys: Iterable[str]) -> Mapping[str, Found]:
        return self._losing.call(lambda: self._store.read(keys))

    def write(self, changes: Mapping[str, FieldChange]) -> Mapping[str, Version | None]:
        return self._losing.change(self._store.write, changes)

    def delete(self, versions: Mapping[str, Version]) -> Mapping[str, bool]:
        return self._losing.change(self._store.delete, versions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class FaultyRecords:
    """`Records` that lose requests and answers."""

    def __init__(self, store: Records, seed: int, share: float = LOST) -> None:
        self._store = store
        self._losing = Losing(seed, share)

    def keys(self, prefix: str, depth: int) -> Sequence[str]:
        return self._store.keys(prefix, depth)

    def list(self, prefix: str, depth: int) -> Mapping[str, Record]:
        return self._store.list(prefix, depth)

    def read(self, keys: Iterable[str]) -> Mapping[str, Record]:
        return self._losing.call(lambda: self._store.read(keys))

    def create(self, values: Mapping[str, bytes]) -> Mapping[str, Record]:
        return self._losing.call(lambda: self._store.create(values))

    def write(
        self, changes: Mapping[str, Change], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, Version | None]:
        return self._losing.change(lambda kept: self._store.write(kept, guards), changes)

    def remove(
        self, versions: Mapping[str, Version], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, bool | None]:
        return self._losing.change(lambda kept: self._store.remove(kept, guards), versions)

    def delete(self, versions: Mapping[str, Version], *, levels_above: int = 0) -> Collection[str]:
        return self._losing.call(lambda: self._store.delete(versions, levels_above=levels_above))
