"""The protocol with one rule taken out: an edit of the library's own source each.

An edit whose text is not in the source any more is an error: the rule has moved, and its mutant
must move with it.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Sequence
from typing import Any

from hqueue.log import PartitionCursor, PartitionWriter
from hqueue.log import attempt as attempt_module
from hqueue.log import cursor as cursor_module
from hqueue.log import history as history_module
from hqueue.log import standing as standing_module
from hqueue.log import tail as tail_module
from hqueue.log import walk as walk_module
from hqueue.log import writer as writer_module

from .model_store import ModelStore

__all__ = ["MUTANTS", "Mutant", "OverwritingStore", "executed", "mutated"]


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


def mutated(mutant: Mutant) -> tuple[type[PartitionWriter], type[PartitionCursor]]:
    """The writer and the reader, with the mutant's edit in one of them."""
    namespace = executed(mutant.module, mutant.edits, mutant.rule)
    if mutant.module is cursor_module:
        return PartitionWriter, namespace["PartitionCursor"]
    if mutant.module is standing_module:
        namespace.update({name: vars(standing_module)[name] for name in ("Batch", "GapError")})
        own = dict(vars(PartitionCursor))
        return PartitionWriter, type("PartitionCursor", (namespace["Standing"],), own)
    if mutant.module is not writer_module:
        # A writer that uses the edited class.
        if mutant.module is walk_module:
            walking = {name: namespace[name] for name in ("BrokenOffError", "HeaderWalk")}
            namespace = executed(history_module, (), mutant.rule)
            namespace.update(walking)
        names = ("Attempt", "History", "TailCache")
        edited = {name: namespace[name] for name in names if name in namespace}
        namespace = executed(writer_module, (), mutant.rule)
        namespace.update(edited)
    return namespace["PartitionWriter"], PartitionCursor


def executed(
    module: types.ModuleType, edits: Sequence[tuple[str, str]], rule: str
) -> dict[str, Any]:
    """A module's names, after edits of its source."""
    source = inspect.getsource(module)
    for old, new in edits:
        if source.count(old) != 1:
            raise LookupError(f"{rule}: found {source.count(old)} times: {old}")
        source = source.replace(old, new)
    # Dataclasses look their module up by its name.
    namespace = types.ModuleType(module.__name__).__dict__
    exec(compile(source, f"<{rule}>", "exec"), namespace)
    return namespace


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "IDs never fall below the slot",
        "a clock that is behind",
        (
            (
                "base = max(position.slot, id_of(now_ms), floor)",
                "base = id_of(now_ms)",
            ),
        ),
        attempt_module,
    ),
    Mutant(
        "a cached tail is trusted for a while only",
        "the queue is truncated between two appends of a writer",
        (
            (
                "if self._position is not None and self._is_fresh():",
                "if self._position is not None:",
            ),
        ),
        tail_module,
    ),
    Mutant(
        "a tail whose answer was slow is read again",
        "the queue is truncated while the tail is read",
        (("            if self._is_fresh():\n", "            if True:\n"),),
        tail_module,
    ),
    Mutant(
        "what was refused is tried again only while the tail is trusted",
        "the queue is truncated while a writer tries again",
        (("elif self._tried and ", "elif False and "),),
        attempt_module,
    ),
    Mutant(
        "after an unknown outcome the slot is read",
        "two writers, one fault of any kind",
        (("        if self._sent:\n", "        if self._sent:\n            return None\n"),),
        attempt_module,
    ),
    Mutant(
        "after an unknown outcome the same put goes to the same slot",
        "two writers, one fault of any kind",
        (("if end == self._position:", "if False:"),),
        attempt_module,
    ),
    Mutant(
        "before it goes there again the log is seen to end there",
        "the queue is truncated under two writers",
        (("if end == self._position:", "if True:"),),
        attempt_module,
    ),
    Mutant(
        "a log that is seen to end before a position where it has been proves nothing",
        "a deposed server answers two writers, and one lost a put",
        (("            self._seen_shorter()\n", "            pass\n"),),
        attempt_module,
    ),
    Mutant(
        "a batch at the slot is ours if it has our nonce: else it is another's",
        "two writers, one fault of any kind",
        (("if owner.nonce == self._nonce:", "if True:"),),
        attempt_module,
    ),
    Mutant(
        "a batch at the slot is ours if it has our nonce",
        "two writers, one fault of any kind",
        (("if owner.nonce == self._nonce:", "if False:"),),
        attempt_module,
    ),
    Mutant(
        "an append keeps its nonce",
        "two writers, one fault of any kind",
        (
            (", self._nonce = position, bodies, nonce\n", " = position, bodies\n"),
            (
                "        self._base = base = max",
                "        self._nonce = nonce = secrets.token_bytes(8)\n"
                "        self._base = base = max",
            ),
            ("        if self._sent:\n", "        if self._sent:\n            return None\n"),
            ("import dataclasses", "import dataclasses\nimport secrets"),
        ),
        attempt_module,
    ),
    Mutant(
        "when the store says that the slot is taken it is read whose it is",
        "two writers, one fault of any kind",
        (("owner = yield from self._owner()\n", "return None\n"),),
        attempt_module,
    ),
    Mutant(
        "a slot that is taken and seems to be empty is looked at again",
        "a deposed server answers two writers, and one lost a put",
        (
            (
                "owner = yield from self._owner()\n",
                "if (yield HeaderAt(self._partition, self._position.slot)) is None:\n"
                "                    return None\n"
                "                owner = yield from self._owner()\n",
            ),
        ),
        attempt_module,
    ),
    Mutant(
        "a batch with our nonce has the IDs that its header says",
        "one nonce, tried by two",
        (
            (
                "        self._base, self._count = owner.base, owner.count\n"
                "        self._end = LogPosition.after(owner)\n"
                "        if owner.nonce == self._nonce:\n",
                "        if owner.nonce != self._nonce:\n"
                "            self._end = LogPosition.after(owner)\n"
                "        if owner.nonce == self._nonce:\n",
            ),
        ),
        attempt_module,
    ),
    Mutant(
        "a header that was found does not make the tail known again",
        "a header is found long after it was written",
        (("update(self._end, self._tail_seen_ms)\n", "update(self._end, self._asked_ms)\n"),),
        attempt_module,
    ),
    Mutant(
        "an empty slot is believed, and filled again, only while it can't have been collected",
        "a put that is late among collections",
        (("first try.\n        self._check_stillness()\n", "first try.\n"),),
        attempt_module,
    ),
    Mutant(
        "a batch that was late is checked to be a link of the chain",
        "a writer stands still beyond every bound",
        (("self._is_late() and not (yield from self._is_linked())", "False"),),
        attempt_module,
    ),
    Mutant(
        "a link is judged by a server that knows the batch itself",
        "a deposed server answers two writers that are slow",
        (
            (
                "rows: list[Row] = yield Backwards(self._partition, slot, 2)\n",
                "rows = yield Headers(self._partition, slot, 1)\n"
                "        rows += yield Backwards(self._partition, slot - 1, 1)\n",
            ),
        ),
        attempt_module,
    ),
    Mutant(
        "a batch that is no link is taken back",
        "a writer stands still beyond every bound",
        (
            (
                "yield DeleteRow(self._partition, self._position.slot, self._bodies.cells)",
                "pass",
            ),
        ),
        attempt_module,
    ),
    Mutant(
        "a put whose fate is unknown makes the append's outcome unknown",
        "the deadline passes for a lone writer",
        (("self.in_doubt = self._sent\n", "pass\n"),),
        attempt_module,
    ),
    Mutant(
        "a doubt of an earlier slot is kept",
        "the queue is truncated before an outcome is known",
        (("self._in_doubt = self._in_doubt or attempt", "self._in_doubt = attempt"),),
    ),
    Mutant(
        "an error says what became of the puts, not of the read that failed",
        "the deadline passes for a lone writer",
        (
            (
                "exc.outcome = Outcome.UNKNOWN if self._in_doubt else Outcome.NOT_APPLIED",
                "pass",
            ),
        ),
    ),
    Mutant(
        "an append by nonce meets every header",
        "one nonce, tried by two",
        (
            (
                "                    found = (yield from self._go_on(nonce, deadline)) or found\n",
                "                    self._walk.end = tail\n",
            ),
        ),
        history_module,
    ),
    Mutant(
        "what was seen is remembered with its nonce",
        "nonces put again by a successor",
        (("                self._remember(header.nonce, seen)\n", ""),),
        history_module,
    ),
    Mutant(
        "what was appended is remembered with its nonce",
        "a nonce put twice by one writer",
        (("            self._remember(nonce, SeenBatch(", "            str(SeenBatch("),),
        history_module,
    ),
    Mutant(
        "only what was appended at the end of what was seen makes that longer",
        "a nonce among appends that don't look",
        (("if self._first is not None and position == self.end:", "if self._first is not None:"),),
        history_module,
    ),
    Mutant(
        "a search begins with the batch that covers the moment",
        "a nonce whose batch covers the moment",
        (
            (
                "row: Row | None = yield Newest(self._partition, since)\n",
                "row = next(iter((yield Headers(self._partition, since, 1))), None)\n",
            ),
        ),
        history_module,
    ),
    Mutant(
        "a search that would begin among collected headers is refused",
        "a nonce whose batch was collected",
        (("if oldest and oldest[0].slot and since is not None:", "if False:"),),
        history_module,
    ),
    Mutant(
        "a log that does not go on after what was seen is searched from the beginning",
        "the queue is truncated between two appends of one nonce",
        (("self._first = self._lacks = None  # It was", "pass  # It was"),),
        history_module,
    ),
    Mutant(
        "a walk that finds nothing looks whether the log comes up to there",
        "the queue is truncated under one nonce",
        (("            yield from self._check_end()\n", "            pass\n"),),
        walk_module,
    ),
    Mutant(
        "a log that is seen to end before what was seen of it is looked at again",
        "a deposed server answers a search",
        (("if end.slot < self.end.slot and self._shorter < LOOKS_MAX:", "if False:"),),
        walk_module,
    ),
    Mutant(
        "after a walk the tail is read",
        "the queue is truncated under one nonce",
        (("if (yield from self._tail.trusted(deadline)) != end:", "if False:"),),
    ),
    Mutant(
        "the newest header is never deleted",
        "a collection is cut off",
        (
            (
                "for row, after in pairwise(rows) if timestamp_of(after",
                "for row in rows if timestamp_of(row",
            ),
            ("self._collected_to = rows[len(old)].slot", "pass"),
        ),
    ),
    Mutant(
        "headers are deleted when they are old",
        "a put that is late when bodies have just expired",
        ((" if timestamp_of(after.slot) < horizon", ""),),
    ),
    Mutant(
        "a header outlives its bodies by the grace",
        "a put that is late when bodies have just expired",
        ((" = expired_ms - HEADER_GRACE_MS", " = expired_ms"),),
    ),
    Mutant(
        "the oldest header goes first",
        "a collection is cut off",
        (("DeleteHeaders(self.partition, old,", "DeleteHeaders(self.partition, old[::-1],"),),
    ),
    Mutant(
        "a collector sees that the log began again",
        "a collector that knew the log before it was truncated",
        (("if came_back or (self._collected_to and (yield", "if False and ((yield"),),
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
        standing_module,
    ),
    Mutant(
        "a gap that is being collected is waited out",
        "headers go in another order than they are named",
        (("MENDING_MS = 10_000", "MENDING_MS = 0"),),
        cursor_module,
    ),
    Mutant(
        "a batch that covers the reader's position shows that the log was truncated",
        "the queue is truncated under a reader",
        (("            if end.end > slot:", "            if False:"),),
        cursor_module,
    ),
    Mutant(
        "a reader looks now and then where the log ends",
        "the queue is truncated under a reader",
        (("        if header.end > self.cursor:", "        if False:"),),
        cursor_module,
    ),
    Mutant(
        "what a jump left out is counted",
        "bodies expire and headers are collected",
        (("        self.expired += max(0, header.ordinal - ordinal)\n", ""),),
        cursor_module,
    ),
    Mutant(
        "bodies that are gone are counted",
        "bodies expire and headers are collected",
        (("            self.expired += min(", "            _ = min("),),
        standing_module,
    ),
)
