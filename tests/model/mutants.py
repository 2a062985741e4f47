"""The protocol with one rule taken out: an edit of the library's own source each.

An edit whose text is not in the source any more is an error: the rule has moved, and its mutant
must move with it.
"""

from __future__ import annotations

import dataclasses
import inspect
import types

from hqueue.log import PartitionReader, PartitionWriter
from hqueue.log import reader as reader_module
from hqueue.log import writer as writer_module

from .store import ModelStore

__all__ = ["MUTANTS", "Mutant", "OverwritingStore", "mutated"]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A rule that is taken out, and a scenario that needs it."""

    rule: str
    scenario: str
    edits: tuple[tuple[str, str], ...]
    module: types.ModuleType = writer_module


class OverwritingStore(ModelStore):
    """A store whose conditional put does not look whether the slot is taken."""

    def put_if_absent(
        self, slot: int, header: bytes, bodies: dict[bytes, bytes], now_ms: int
    ) -> bool:
        self.rows.pop(slot, None)
        return super().put_if_absent(slot, header, bodies, now_ms)


def mutated(mutant: Mutant) -> tuple[type[PartitionWriter], type[PartitionReader]]:
    """The writer and the reader, with the mutant's edit in one of them."""
    source = inspect.getsource(mutant.module)
    for old, new in mutant.edits:
        if source.count(old) != 1:
            raise LookupError(f"{mutant.rule}: found {source.count(old)} times: {old}")
        source = source.replace(old, new)
    module = types.ModuleType(mutant.module.__name__)
    # Dataclasses look their module up; and a Place of the real module must equal the mutant's.
    namespace = module.__dict__
    exec(compile(source, f"<{mutant.rule}>", "exec"), namespace)
    if mutant.module is writer_module:
        for name in ("Place", "Appended"):
            namespace[name] = getattr(writer_module, name)
        return namespace["PartitionWriter"], PartitionReader
    namespace["Batch"] = reader_module.Batch
    return PartitionWriter, namespace["PartitionReader"]


_BODY = " " * 20
_LOOP = " " * 16

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "IDs never fall below the slot",
        "a clock that is behind",
        (("base = max(place.slot, now_ms << SEQUENCE_BITS)", "base = now_ms << SEQUENCE_BITS"),),
    ),
    Mutant(
        "a cached tail is trusted for a while only",
        "the queue is truncated under two writers",
        (("if self._tail is not None and self._is_fresh():", "if self._tail is not None:"),),
    ),
    Mutant(
        "a tail whose answer was slow is read again",
        "the queue is truncated while the tail is read",
        (("            if self._is_fresh():\n", "            if True:\n"),),
    ),
    Mutant(
        "what was refused is tried again only while the tail is trusted",
        "the queue is truncated while a writer tries again",
        (("if retried and not sent and ", "if False and "),),
    ),
    Mutant(
        "after an unknown outcome the slot is read",
        "two writers, one fault of any kind",
        ((f"{_LOOP}if sent:\n", f"{_LOOP}if sent:\n{_BODY}return None\n{_LOOP}if sent:\n"),),
    ),
    Mutant(
        "after an unknown outcome the same put goes to the same slot",
        "two writers, one fault of any kind",
        (("self._fresh_tail(deadline) != place:", "True:"),),
    ),
    Mutant(
        "before it goes there again the tail is read",
        "the queue is truncated under two writers",
        (("if owner is None and self._fresh_tail(deadline) != place:", "if False:"),),
    ),
    Mutant(
        "when the tail has moved the slot is read again",
        "two writers, one fault of any kind",
        (
            (
                f"{_BODY}    owner = self._owner_of(place, tail_seen_ms)\n"
                f"{_BODY}    if owner is None:\n{_BODY}        return None\n"
                f"{_LOOP}if owner is None:\n",
                f"{_BODY}    return None\n{_LOOP}if owner is None:\n",
            ),
        ),
    ),
    Mutant(
        "a batch at the slot is ours if it has our nonce: else it is another's",
        "two writers, one fault of any kind",
        (("if owner.nonce != nonce:", "if False:"),),
    ),
    Mutant(
        "a batch at the slot is ours if it has our nonce",
        "two writers, one fault of any kind",
        (("if owner.nonce != nonce:", "if True:"),),
    ),
    Mutant(
        "an append keeps its nonce",
        "two writers, one fault of any kind",
        (
            (
                "        now_ms, count = self._clock",
                "        nonce = nonce[::-1] if self._doubtful else nonce\n"
                "        now_ms, count = self._clock",
            ),
            (f"if sent:\n{_BODY}owner", f"if sent:\n{_BODY}return None\n{_BODY}owner"),
        ),
    ),
    Mutant(
        "when the store says that the slot is taken it is read whose it is",
        "two writers, one fault of any kind",
        (
            (
                f"{_BODY}if not won:\n{_BODY}    owner = self._owner_of(place, tail_seen_ms)\n"
                f"{_BODY}    if owner is None:\n",
                f"{_BODY}if not won:\n{_BODY}    if owner is None:\n",
            ),
        ),
    ),
    Mutant(
        "a batch with our nonce has the IDs that its header says",
        "one nonce, tried by two",
        (
            (
                f"{_BODY}base, count = owner.base, owner.count\n"
                f"{_BODY}end = Place(owner.end, owner.next_ordinal)\n"
                f"{_BODY}if owner.nonce != nonce:\n",
                f"{_BODY}if owner.nonce != nonce:\n"
                f"{_BODY}    end = Place(owner.end, owner.next_ordinal)\n",
            ),
        ),
    ),
    Mutant(
        "a header that was found does not make the tail known anew",
        "a header is found long after it was written",
        (("self._know(end, tail_seen_ms)\n", "self._know(end, asked_ms)\n"),),
    ),
    Mutant(
        "an empty slot is believed only while it can't have been collected",
        "a put that is late among collections",
        (("            self._check_stillness(since_ms)\n", ""),),
    ),
    Mutant(
        "what is old is not sent again",
        "a put that is late among collections",
        (("if sent:  # What is sent again", "if False:  # What is sent again"),),
    ),
    Mutant(
        "a batch that was late is checked to be a link of the chain",
        "a writer stands still beyond every bound",
        (("linked = self._is_linked(place, end)", "linked = True"),),
    ),
    Mutant(
        "a batch that is no link is taken back",
        "a writer stands still beyond every bound",
        (("self._port.delete_row(self.partition, place.slot, bodies.cells)", "pass"),),
    ),
    Mutant(
        "an append that stood still does not claim to know",
        "a writer stands still beyond every bound",
        (
            (
                f"{_BODY}self._check_stillness(tail_seen_ms)\n{_BODY}if not linked:",
                f"{_BODY}if not linked:",
            ),
        ),
    ),
    Mutant(
        "a put whose fate is unknown makes the append's outcome unknown",
        "the deadline passes for a lone writer",
        (("self._doubtful = doubtful_before or sent\n", "pass\n"),),
    ),
    Mutant(
        "a doubt of an earlier slot is kept",
        "the queue is truncated before an outcome is known",
        (("self._doubtful = doubtful_before or sent\n", "self._doubtful = sent\n"),),
    ),
    Mutant(
        "an error says what became of the puts, not of the read that failed",
        "the deadline passes for a lone writer",
        (
            (
                "exc.outcome = Outcome.UNKNOWN if self._doubtful else Outcome.NOT_APPLIED",
                "pass",
            ),
        ),
    ),
    Mutant(
        "an append by nonce meets every header",
        "one nonce, tried by two",
        (
            (
                f"{_LOOP}for header in self.walk(place, deadline):\n",
                f"{_LOOP}place = self.tail(deadline)\n"
                f"{_LOOP}for header in self.walk(place, deadline):\n",
            ),
        ),
    ),
    Mutant(
        "a walk that finds nothing looks whether the log comes up to there",
        "the queue is truncated under one nonce",
        (("if not rows and not self._ends_at(place):", "if False:"),),
    ),
    Mutant(
        "after a walk the tail is read",
        "the queue is truncated under one nonce",
        (("if self._fresh_tail(deadline) == place:", "if True:"),),
    ),
    Mutant(
        "the newest header is never deleted",
        "a collection is cut off",
        (
            ("for row, after in pairwise(rows) if after.slot", "for row in rows if row.slot"),
            ("self._collected_to = rows[len(old)].slot", "pass"),
        ),
    ),
    Mutant(
        "headers are deleted when they are old",
        "bodies expire and headers are collected",
        ((" if after.slot >> SEQUENCE_BITS < horizon", ""),),
    ),
    Mutant(
        "a header outlives its bodies by the grace",
        "a put that is late when bodies have just expired",
        ((" - ttl_ms - HEADER_GRACE_MS", " - ttl_ms"),),
    ),
    Mutant(
        "the oldest header goes first",
        "a collection is cut off",
        (("delete_headers(self.partition, old)", "delete_headers(self.partition, old[::-1])"),),
    ),
    Mutant(
        "a collector sees that the log began anew",
        "a collector that knew the log before it was truncated",
        (("if self._collected_to and self._port", "if False and self._port"),),
    ),
    Mutant(
        "the next batch lies exactly where the last one ends",
        "a reader behind a writer",
        (
            (
                "self._slot, self._ordinal = header.end, header.next_ordinal\n        return batch",
                "self._slot = max(header.end, self._clock.wall_ms() + 100 << 15)\n"
                "        self._ordinal = header.next_ordinal\n        return batch",
            ),
        ),
        reader_module,
    ),
    Mutant(
        "a gap that is being collected is waited out",
        "headers go in another order than they are named",
        (("MENDING_MS = 10_000", "MENDING_MS = 0"),),
        reader_module,
    ),
    Mutant(
        "a batch that covers the reader's place shows that the log was truncated",
        "the queue is truncated under a reader",
        (("            if end.end > slot:", "            if False:"),),
        reader_module,
    ),
    Mutant(
        "a reader looks now and then where the log ends",
        "the queue is truncated under a reader",
        (("        if header.end > self.cursor:", "        if False:"),),
        reader_module,
    ),
    Mutant(
        "what a jump left out is counted",
        "bodies expire and headers are collected",
        (("        self.expired += max(0, header.ordinal - ordinal)\n", ""),),
        reader_module,
    ),
    Mutant(
        "bodies that are gone are counted",
        "bodies expire and headers are collected",
        (("            self.expired += sum(entry.count for entry in wanted)\n", ""),),
        reader_module,
    ),
)
