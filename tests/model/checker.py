"""Judges a run: what the store really did, against what the participants learned.

It knows the format of a header's fixed part by itself (docs of `hqueue.format`), and nothing else
of the library: a rule is checked by what it is for, not by how it is kept.
"""

from __future__ import annotations

import collections
import dataclasses
import struct
from collections.abc import Iterable
from itertools import pairwise

__all__ = ["Entry", "Given", "Ledger", "ViolationError"]

_FIXED = struct.Struct(">8xQIIQ8sQ")


class ViolationError(AssertionError):
    """The protocol broke a promise."""


@dataclasses.dataclass(slots=True)
class Entry:
    """A batch that was written, as its header has it."""

    author: str
    slot: int
    base: int
    end: int
    count: int
    ordinal: int
    nonce: bytes
    epoch: int
    linked: bool
    """Whether it was written at the end of the chain."""
    deleted: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """A batch that a reader gave out: the messages with IDs in ``[start, stop)``."""

    nonce: bytes
    base: int
    ordinal: int
    start: int
    stop: int


class Ledger:
    """What was written, in the order in which the store took it, and what everyone learned.

    Args:
        orphans_allowed: whether a batch may lie outside the chain for a while, until its writer
            has noticed. That is so only where a process stands still beyond the stated bounds.
    """

    def __init__(self, *, orphans_allowed: bool = False) -> None:
        self.entries: list[Entry] = []
        self.epoch = 0
        self._orphans_allowed = orphans_allowed
        self._outcomes: list[tuple[str, bytes, str]] = []
        self._sent: set[tuple[str, bytes]] = set()
        self._given: dict[str, list[Given]] = {}

    def key(self) -> object:
        return self.epoch, tuple(
            (e.nonce, e.slot, e.base, e.epoch, e.deleted) for e in self.entries
        )

    def chain(self) -> list[Entry]:
        """The batches since the last truncation, in order."""
        return [e for e in self.entries if e.epoch == self.epoch and e.linked]

    def collected(self) -> bool:
        """Whether headers of the chain were deleted."""
        return any(e.deleted for e in self.chain())

    def end(self) -> tuple[int, int]:
        """The slot and the ordinal of the batch that comes next."""
        chain = self.chain()
        return (chain[-1].end, chain[-1].ordinal + chain[-1].count) if chain else (0, 0)

    # What the store did.

    def written(self, author: str, slot: int, header: bytes) -> None:
        base, span, count, ordinal, nonce, published_ms = _FIXED.unpack_from(header)
        linked = (slot, ordinal) == self.end()
        entry = Entry(author, slot, base, base + span, count, ordinal, nonce, self.epoch, linked)
        if base < slot:
            raise ViolationError(f"IDs went back: {entry}")
        if base != max(slot, published_ms << 15):
            raise ViolationError(f"IDs do not carry the time: {entry}")
        if span < 1 or span != max(count, 1):
            raise ViolationError(f"the IDs do not fit the messages: {entry}")
        if linked and any(e.nonce == nonce for e in self.chain()):
            raise ViolationError(f"a batch is in the log twice: {entry}")
        if not linked and not self._orphans_allowed:
            raise ViolationError(f"a batch outside the chain, whose end is {self.end()}: {entry}")
        self.entries.append(entry)

    def header_deleted(self, slot: int) -> None:
        entry = self._at(slot)
        if entry is not None:
            if entry.linked and entry is self.chain()[-1]:
                raise ViolationError(f"the newest header was deleted: {entry}")
            entry.deleted = True

    def row_deleted(self, slot: int) -> None:
        entry = self._at(slot)
        if entry is not None:
            if entry.linked:
                raise ViolationError(f"a batch was taken out of the chain: {entry}")
            entry.deleted = True

    def truncated(self) -> None:
        self.epoch += 1

    def _at(self, slot: int) -> Entry | None:
        for entry in reversed(self.entries):
            if entry.epoch == self.epoch and entry.slot == slot and not entry.deleted:
                return entry
        return None

    def sent(self, author: str, header: bytes) -> None:
        """A put left its writer, and may come to the store."""
        self._sent.add((author, _FIXED.unpack_from(header)[4]))

    # What the participants learned.

    def returned(self, name: str, nonce: bytes, base: int, count: int, end: int) -> None:
        """An append returned: it is in the log."""
        found = [e for e in self.entries if e.nonce == nonce and e.linked]
        if not found:
            raise ViolationError(f"{name} learned that {nonce!r} is in the log, and it is not")
        if all((e.base, e.count, e.end) != (base, count, end) for e in found):
            raise ViolationError(f"{name} learned other IDs of {nonce!r}: {base}, {found}")
        self._outcomes.append((name, nonce, "returned"))

    def raised(self, name: str, nonce: bytes, outcome: str) -> None:
        """An append raised, with this outcome."""
        self._outcomes.append((name, nonce, outcome))

    def gave(self, reader: str, given: Given) -> None:
        """A reader gave out a batch."""
        found = [e for e in self.entries if (e.nonce, e.base) == (given.nonce, given.base)]
        if not found or not found[-1].linked or found[-1].ordinal != given.ordinal:
            raise ViolationError(f"{reader} gave what is not in the log: {given}")
        before = self._given.setdefault(reader, [])
        if before and given.start < before[-1].stop:
            raise ViolationError(f"{reader} gave a message again, or an older one: {given}")
        before.append(given)

    def given(self, reader: str) -> list[Given]:
        return self._given.get(reader, [])

    # At the end.

    def check_outcomes(self) -> None:
        """Outcomes hold for good, and each writer's batches are in the order of its appends."""
        tries = collections.Counter((name, nonce) for name, nonce, _ in self._outcomes)
        for name, nonce, outcome in self._outcomes:
            if (
                outcome == "not applied"
                and tries[name, nonce] == 1
                and any(e.nonce == nonce and e.author == name for e in self.entries)
            ):
                raise ViolationError(f"{name} learned that {nonce!r} is not applied, and it was")
            if outcome == "unknown" and (name, nonce) not in self._sent:
                raise ViolationError(
                    f"{name} learned that {nonce!r} may be in, and it was never sent"
                )
        places: dict[tuple[int, str], bytes] = {}
        for entry in self.entries:
            key = entry.epoch, entry.author
            if entry.linked and places.get(key, b"") > entry.nonce:
                raise ViolationError(f"a writer's appends were reordered: {entry}")
            places[key] = entry.nonce

    def check_orphans(self, present: Iterable[int]) -> None:
        """Nothing lies in the store but the chain."""
        chain = {entry.slot for entry in self.chain()}
        for slot in present:
            if slot not in chain:
                raise ViolationError(f"a batch outside the chain stayed: {self._at(slot)}")

    def check_reader(
        self,
        reader: str,
        *,
        start: int,
        cursor: int,
        readable: Iterable[int],
        expired: int | None,
    ) -> None:
        """A reader misses nothing below its cursor that is there, and counts what is not.

        Args:
            reader: its name.
            start: where it began.
            cursor: where it stands.
            readable: the slots whose bodies have not expired, with a header or without.
            expired: the messages that it counted as expired; None not to check them.
        """
        alive = set(readable)
        given = self.given(reader)
        bases = {(g.nonce, g.base) for g in given}
        missed = 0
        for entry in self.chain():
            passed = entry.end <= cursor and entry.end > start and entry.count
            if not passed or (entry.nonce, entry.base) in bases:
                continue
            if entry.slot in alive:
                raise ViolationError(f"{reader} stands at {cursor} and never gave {entry}")
            missed += entry.count
        if expired is not None and not expired <= missed:
            raise ViolationError(f"{reader} counted {expired} expired messages of {missed}")
        for one, other in pairwise(given):
            between = [
                e for e in self.chain() if e.base >= one.stop and e.end <= other.start and e.count
            ]
            if expired == 0 and between:
                raise ViolationError(f"{reader} stepped over messages without a word: {between}")
