"""What is asked of a metadata store, as values: what decides with records yields them, and is sent
the answers.

Each is a request of the ports of `hqueue.metadata.ports`, named as the port's method, where its
fields and its answer are described. Besides there are `Pause`, between two tries, and `Wait`.
`OnStore` carries them out: in the caller's thread, or in an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from hqueue.metadata.ports import (
    Attempt,
    Change,
    Group,
    GuardedWrite,
    MetadataStore,
    Obstacle,
    Record,
    Version,
)
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock, do_step, do_step_in_loop
from hqueue.runtime.steps import Pause, Wait
from hqueue.runtime.steps import Work as AnyWork
from hqueue.runtime.stepwise import Stepwise

__all__ = [
    "Claim",
    "Close",
    "Confirm",
    "Create",
    "Delete",
    "Keys",
    "List",
    "OnStore",
    "Own",
    "Pause",
    "PutEphemerals",
    "Read",
    "Release",
    "Step",
    "Wait",
    "Work",
    "Write",
    "WriteWhereAbsent",
]

Result = TypeVar("Result")


class Keys(NamedTuple):
    """`Records.keys`."""

    prefix: str
    depth: int

    def do(self, store: MetadataStore) -> Sequence[str]:
        return store.records.keys(*self)


class List(NamedTuple):
    """`Records.list`."""

    prefix: str
    depth: int

    def do(self, store: MetadataStore) -> Mapping[str, Record]:
        return store.records.list(*self)


class Read(NamedTuple):
    """`Records.read`."""

    keys: Iterable[str]

    def do(self, store: MetadataStore) -> Mapping[str, Record]:
        return store.records.read(*self)


class Write(NamedTuple):
    """`Records.write`."""

    changes: Mapping[str, Change]

    def do(self, store: MetadataStore) -> Mapping[str, Version | None]:
        return store.records.write(*self)


class Delete(NamedTuple):
    """`Records.delete`."""

    versions: Mapping[str, Version]
    levels_above: int = 0

    def do(self, store: MetadataStore) -> Collection[str]:
        return store.records.delete(self.versions, levels_above=self.levels_above)


class Create(NamedTuple):
    """`Records.create`."""

    values: Mapping[str, bytes]

    def do(self, store: MetadataStore) -> Mapping[str, Record]:
        return store.records.create(*self)


class PutEphemerals(NamedTuple):
    """`Ephemerals.put`."""

    groups: Sequence[Group]
    is_own: Callable[[bytes], bool]
    parents: bool = False

    def do(self, store: MetadataStore) -> Attempt:
        return store.ephemerals.put(self.groups, is_own=self.is_own, parents=self.parents)


class Claim(NamedTuple):
    """`Ephemerals.claim`."""

    values: Mapping[str, bytes]

    def do(self, store: MetadataStore) -> Collection[str]:
        return store.ephemerals.claim(*self)


class Release(NamedTuple):
    """`Ephemerals.release`."""

    keys: Iterable[str]
    wait: bool = True

    def do(self, store: MetadataStore) -> Any:
        # In a loop it gives what is awaited.
        return store.ephemerals.release(self.keys, wait=self.wait)


class Own(NamedTuple):
    """`Ephemerals.own`."""

    keys: Iterable[str]
    on_change: Callable[[str], None]

    def do(self, store: MetadataStore) -> Mapping[str, Record]:
        return store.ephemerals.own(*self)


class WriteWhereAbsent(NamedTuple):
    """`Ephemerals.write_where_absent`."""

    writes: Sequence[GuardedWrite]

    def do(self, store: MetadataStore) -> Obstacle | None:
        return store.ephemerals.write_where_absent(*self)


class Confirm(NamedTuple):
    """`MetadataStore.confirm`."""

    def do(self, store: MetadataStore) -> float:
        return store.confirm()


class Close(NamedTuple):
    """`MetadataStore.close`."""

    def do(self, store: MetadataStore) -> Any:
        # In a loop it gives what is awaited.
        return store.close()


Step = (
    Keys | List | Read | Write | Delete | Create | PutEphemerals | Claim | Release | Own
    | WriteWhereAbsent | Confirm | Close | Pause | Wait
)  # fmt: skip
Work = AnyWork[Any, Result]
"""Yields a `Step`, and is sent what came of it."""


class OnStore(Stepwise):
    """What decides with the records of a store: its methods are `hqueue.runtime.stepwise`.

    Args:
        store: the store.
        clock: pauses between two tries.
    """

    def __init__(self, store: MetadataStore, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._clock = clock

    @property
    def store(self) -> MetadataStore:
        """Where its records lie."""
        return self._store

    def _do(self, step: Any) -> object:
        return do_step(self._store, self._clock, step)

    async def _do_in_loop(self, step: Any) -> object:
        if isinstance(step, Pause):
            return await do_step_in_loop(None, self._clock, step)
        return await self._store.answer(step)
