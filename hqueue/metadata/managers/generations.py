"""Records that disappear and are made again, and whose versions never come a second time.

ZooKeeper counts a node's versions from 0 each time that the node is created. So a process that
stood still between reading a record and changing it could change another record: one that was
created at the same key meanwhile, and has the same number. A *generation* tells them apart:

- Beside the record lies a node that stays, and is written once for each record that is created, in
  the same transaction. Its own version is the generation, and the record's value names it:
  ``{"version": 1, "generation": 7, …}``.
- What others see as the record's version is its generation and the node's own version.
- A record is changed or deleted by a transaction that also compares the generation.

A record that names none, of an earlier release or one that can't be read, has the generation that
was found there before the record was read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from hqueue.errors import HQueueError, Outcome
from hqueue.metadata.ports import ANY, Change, Guard, MetadataStore, Record, Version
from hqueue.metadata.steps import Work
from hqueue.runtime.stepwise import Stepwise, asked, stepwise

__all__ = ["GENERATION", "GenerationRecords", "check_parts"]

GENERATION = 2**32
"""A version is a node's own, and the generation times this."""

_HEAD = b'{"version": 1, '
_NAMED = re.compile(rb'\{"version": 1, "generation": ([0-9]{1,10}), ')


def check_parts(version: Version, version_max: int) -> bool:
    """Whether a record may have this version, which is not a special one."""
    return all(part <= version_max for part in divmod(version, GENERATION))


class GenerationRecords(Stepwise):
    """`ChangeableRecords`; those that are created (`create_present`) are this session's,
    each in a generation of its own. Thread-safe.

    Args:
        store: the session.
        beside: the key of the node whose version is a record's generation.
    """

    def __init__(self, store: MetadataStore, beside: Callable[[str], str]) -> None:
        self._store = store
        self._records = store.records
        self._beside = beside

    @stepwise
    def keys(self, prefix: str, depth: int) -> Work[Sequence[str]]:
        """Like `ChangeableRecords.keys`."""
        keys: Sequence[str] = yield asked(self._records.keys, prefix, depth)
        return keys

    @stepwise
    def list(self, prefix: str, depth: int) -> Work[dict[str, Record]]:
        """Like `ChangeableRecords.list`."""
        return (yield from self.read.steps((yield asked(self._records.keys, prefix, depth))))

    @stepwise
    def read(self, keys: Iterable[str]) -> Work[dict[str, Record]]:
        """Like `ChangeableRecords.read`."""
        found: Mapping[str, Record] = yield asked(self._records.read, keys)
        known = {key: _known_as(each) for key, each in found.items()}
        unnamed = [key for key, each in known.items() if each is None]
        if unnamed:
            # The record is read after the generation: a later one has another.
            there = yield asked(self._records.read, {self._beside(key) for key in unnamed})
            again: Mapping[str, Record] = yield asked(self._records.read, unnamed)
            for key, each in again.items():
                node = there.get(self._beside(key))
                generation = 0 if node is None else node.version
                known[key] = _known_as(each) or _of_generation(each, generation)
        return {key: each for key, each in known.items() if each is not None}

    @stepwise
    def write(
        self, changes: Mapping[str, Change], guards: Mapping[str, Guard] | None = None
    ) -> Work[dict[str, Version | None]]:
        """Like `ChangeableRecords.write`, of records that are there."""
        sent: dict[str, Change] = {}
        held: dict[str, Guard] = {}
        for key, (value, version) in changes.items():
            generation, own = _parts(version)
            sent[key] = Change(_named(value, generation), own)
            held[key] = Guard(self._beside(key), Version(generation))
        yield from self._prepare(held)
        written = yield asked(self._records.write, sent, {**held, **(guards or {})})
        return {key: _label(_parts(changes[key].version)[0], own) for key, own in written.items()}

    @stepwise
    def create_present(self, values: Mapping[str, bytes]) -> Work[dict[str, Version | None]]:
        """Like `Ephemerals.create`; None also where another was created and is gone again."""
        with _nothing_is_made():
            guards = yield from self._newest({key: self._beside(key) for key in values})
        named = {key: _named(value, guards[key].version + 1) for key, value in values.items()}
        created = yield asked(self._store.ephemerals.create, named, guards)
        return {key: _label(guards[key].version + 1, own) for key, own in created.items()}

    @stepwise
    def remove(
        self, versions: Mapping[str, Version], guards: Mapping[str, Guard] | None = None
    ) -> Work[Mapping[str, bool | None]]:
        """Like `ChangeableRecords.remove`."""
        sent: dict[str, Version] = {}
        held: dict[str, Guard] = {}
        for key, version in versions.items():
            generation, sent[key] = _parts(version)
            held[key] = Guard(self._beside(key), Version(generation))
        yield from self._prepare(held)
        removed: Mapping[str, bool | None] = yield asked(
            self._records.remove, sent, {**held, **(guards or {})}
        )
        return removed

    @stepwise
    def delete(
        self, versions: Mapping[str, Version], *, levels_above: int = 0
    ) -> Work[Collection[str]]:
        """Like `ChangeableRecords.delete`, whatever the versions: of those that nobody uses."""
        anyhow = dict.fromkeys(versions, ANY)
        left: Collection[str] = yield asked(self._records.delete, anyhow, levels_above=levels_above)
        return left

    def _newest(self, beside: Mapping[str, str]) -> Work[dict[str, Guard]]:
        """The guards of records that will be created, given the nodes beside them."""
        nodes = set(beside.values())
        there: dict[str, Record] = dict((yield asked(self._records.read, nodes)))
        if missing := nodes - there.keys():
            there |= yield asked(self._records.create, dict.fromkeys(missing, b""))
        return {key: Guard(node, there[node].version) for key, node in beside.items()}

    def _prepare(self, guards: Mapping[str, Guard]) -> Work[None]:
        """Create the nodes of generations that are compared, and were never there."""
        first = {guard.key: b"" for guard in guards.values() if guard.version == 0}
        if first:
            with _nothing_is_made():
                yield asked(self._records.create, first)


def _parts(version: Version) -> tuple[int, Version]:
    """A version's generation, and the node's own version."""
    generation, own = divmod(version, GENERATION)
    return generation, Version(own)


def _label(generation: int, own: Version | None) -> Version | None:
    return None if own is None else Version(generation * GENERATION + own)


def _named(value: bytes, generation: int) -> bytes:
    """A value that names its record's generation."""
    if not generation or not value.startswith(_HEAD):
        return value
    return b'%s"generation": %d, %s' % (_HEAD, generation, value[len(_HEAD) :])


def _known_as(record: Record) -> Record | None:
    """A record as others see it; None if its value does not name its generation."""
    named = _NAMED.match(record.value)
    if named is None:
        return None
    unnamed = dataclasses.replace(record, value=_HEAD + record.value[named.end() :])
    return _of_generation(unnamed, int(named[1]))


def _of_generation(record: Record, generation: int) -> Record:
    version = Version(generation * GENERATION + record.version)
    return dataclasses.replace(record, version=version)


@contextlib.contextmanager
def _nothing_is_made() -> Iterator[None]:
    """Errors here come before any change: nodes beside records are none."""
    try:
        yield
    except HQueueError as exc:
        exc.outcome = Outcome.NOT_APPLIED
        raise
