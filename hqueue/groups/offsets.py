"""A group's offsets by partition, and which members may commit them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, cast

from hqueue.errors import (
    CommitFailedError,
    Outcome,
    StoreUnavailableError,
    UnsupportedFormatError,
)
from hqueue.groups.paths import GroupPaths
from hqueue.message_id import MessageID
from hqueue.metadata import MetadataStore, PartitionKey
from hqueue.metadata.encoding import decode_offset, encode_offset, offset_writer
from hqueue.metadata.outcomes import answers_of, is_unknown
from hqueue.metadata.ports import Change, Record, Version
from hqueue.metadata.steps import Create, Delete, List, OnStore, Read, Work, Write
from hqueue.runtime.stepwise import stepwise

__all__ = ["UNSET", "GroupOffsets", "Offset", "Position"]

TRIES_MAX = 100
"""How often an offset may be changed by others while it is taken over."""


class Position(NamedTuple):
    """A position in a partition."""

    next: MessageID
    """The first ID that is not consumed yet. It need not be that of a message."""
    ordinal: int | None = None
    """How many messages the partition had before it, if that is known: so it is seen how many are
    gone when they expire before they are consumed."""


UNSET = Position(MessageID(0))
"""The position of a group that has none yet. None that was reached is the same."""


@dataclasses.dataclass(frozen=True, slots=True)
class Offset:
    """How far a group is in a partition."""

    position: Position
    version: Version
    """What a commit compares: another after each commit, and after each take-over."""
    claim: object = dataclasses.field(default=None, compare=False, repr=False)
    """The take-over that made it; None if it was only read."""
    unreadable: UnsupportedFormatError | None = dataclasses.field(default=None, compare=False)
    """Why its record can't be read, if it can't: then the position says nothing. Setting the
    offset all the same writes over the record."""


class GroupOffsets(OnStore):
    """How far a group is in each partition. Thread-safe.

    **Fencing**: a consumer that claims a partition takes its offset over, which gives it another
    version; and a commit counts only for the version that its sender knows. So a consumer that lost
    the partition, and has not noticed, commits nothing any more, however late its request arrives;
    and what it committed before is where its successor begins.

    Records name their writer: of two that write the same offset, each knows which was its own.

    A record that can't be read stands for itself: it is reported as such (`Offset.unreadable`), is
    left as it is by a take-over, and is written over by a commit that knows its version.

    Args:
        store: where the offsets lie.
        paths: the group's.
    """

    def __init__(self, store: MetadataStore, paths: GroupPaths) -> None:
        super().__init__(store)
        self._paths = paths
        self._claims: dict[PartitionKey, object] = {}
        """For each partition that was taken over a token, another with each take-over."""

    @stepwise
    def read(self, partitions: Iterable[PartitionKey]) -> Work[dict[PartitionKey, Offset]]:
        """Those of these offsets that exist, in a few round trips."""
        return self._decoded((yield Read([*map(self._paths.offset, partitions)])))

    @stepwise
    def list(self) -> Work[dict[PartitionKey, Offset]]:
        """Every offset of the group."""
        return self._decoded((yield List(self._paths.offsets, 2)))

    @stepwise
    def read_or_create(
        self, consumer: str, partitions: Iterable[PartitionKey]
    ) -> Work[dict[PartitionKey, Offset]]:
        """These offsets, created as `UNSET` where they are missing. Fences nobody."""
        wanted = [*partitions]
        known = yield from self.read.steps(wanted)
        missing = {
            self._paths.offset(key): encode_offset(*UNSET, consumer)
            for key in wanted
            if key not in known
        }
        if missing:
            known |= self._decoded((yield Create(missing)))
        return known

    @stepwise
    def versions(self, queue: str | None = None) -> Work[dict[str, Version]]:
        """Where every offset of the group lies, with its version: what `delete` takes. Of one
        queue those of this cluster, else those of all. They need not be readable.
        """
        below = self._paths
        found = yield List(below.offsets, 2) if queue is None else List(below.offsets_of(queue), 1)
        return {
            path: record.version
            for path, record in found.items()
            if queue is None or self._paths.partition_key(path) is not None
        }

    @stepwise
    def delete(self, versions: Mapping[str, Version]) -> Work[Collection[str]]:
        """Delete offsets that nobody changed since; returns those that stay."""
        stay: Collection[str] = yield Delete(versions, levels_above=1)
        return stay

    @stepwise
    def take_over(
        self,
        consumer: str,
        partitions: Collection[PartitionKey],
        claimed: Callable[[], Work[bool]] | None = None,
    ) -> Work[dict[PartitionKey, Offset]]:
        """Let nobody else commit in these partitions, which this consumer has claimed.

        Args:
            consumer: an ID that no other process has, and none had.
            partitions: which. One whose record can't be read is fenced by the first commit that
                writes over it.
            claimed: whether it has claimed them, asked between reading an offset and taking it
                over. So what is taken over is never that of a later owner: who had claimed it
                before it was read would make this false, and who does so later changes the version.

        Returns:
            Each partition's offset, which stays what it was; `UNSET` where there was none. All are
            there, unless it is not `claimed` any more.

        Raises:
            StoreUnavailableError: the store, or others that change the offsets, left no way.
        """
        taken: dict[PartitionKey, Offset] = {}
        claims = {key: object() for key in partitions}
        # Before anything is written: what finds this take-over's version finds this, too.
        self._claims.update(claims)
        for _ in range(TRIES_MAX):
            left = [key for key in partitions if key not in taken]
            if not left:
                return taken
            known = yield from self.read_or_create.steps(consumer, left)
            if claimed is not None and not (yield from claimed()):
                return taken
            known = {
                key: dataclasses.replace(offset, claim=claims[key]) for key, offset in known.items()
            }
            taken |= {key: offset for key, offset in known.items() if offset.unreadable}
            # One that is created is taken over as well: it may be another's that was faster.
            written = yield from self._write(
                consumer,
                {
                    key: (offset, offset.position)
                    for key, offset in known.items()
                    if key not in taken
                },
            )
            taken |= written.moved
            if written.error is not None:
                raise written.error
        raise StoreUnavailableError(
            "other programs keep changing these offsets: try again",
            outcome=Outcome.NOT_APPLIED,
            partitions=left,
        )

    def give_up(self) -> None:
        """Call nothing this consumer's own any more of what was taken over until now: it may take
        that over by others of these. Commits count as before.
        """
        self._claims.clear()

    @stepwise
    def commit(
        self, consumer: str, moves: Mapping[PartitionKey, tuple[Offset, Position]]
    ) -> Work[dict[PartitionKey, Offset]]:
        """Move offsets, each if nobody changed it since it was known; many in few round trips.

        What a commit of the same claim changed, that got no answer and was made later, is no
        reason to refuse one: nobody else had the partition meanwhile.

        Args:
            consumer: the ID of the one that commits.
            moves: for each partition the offset that is known, and where it goes: also back.

        Returns:
            Those that were moved. Where one is missing, another consumer has the partition now,
            or the offset was set by hand.

        Raises:
            CommitFailedError: no answer came, and others have some of the partitions now, or this
                consumer took them over again. They went on from what was committed here, or from
                the offset before it: that is not known.
            StoreUnavailableError: with an outcome of all together. Facts: the partitions that are
                `committed`, those that were `refused` as others have them, and those that are
                `unknown`; the rest was not applied.
        """
        written = yield from self._write(consumer, moves)
        refused = {key: moves[key][0] for key in written.refused}
        try:
            known = yield from self._changed_late(consumer, refused)
        except StoreUnavailableError as exc:
            known, written.error = {}, written.error or exc
        if known:
            again = yield from self._write(
                consumer, {key: (offset, moves[key][1]) for key, offset in known.items()}
            )
            written = written.followed_by(again)
        if written.error is not None:
            raise _failed(written, written.error)
        if written.lost:
            raise CommitFailedError(
                "other consumers have these partitions now, and the outcome of an earlier try is "
                "unknown",
                outcome=Outcome.UNKNOWN,
                partitions=sorted(written.lost | written.refused),
                unknown=sorted(written.lost),
                committed=sorted(written.moved),
            )
        return written.moved

    def _write(
        self, consumer: str, moves: Mapping[PartitionKey, tuple[Offset, Position]]
    ) -> Work[Written]:
        """Like `commit`, but that any change since is a reason."""
        written = Written()
        paths = {self._paths.offset(key): key for key in moves}
        changes = {
            path: Change(encode_offset(*moves[key][1], consumer), moves[key][0].version)
            for path, key in paths.items()
        }
        answers: Mapping[str, object] = {}
        try:
            answers = (yield Write(changes)) if changes else {}
        except StoreUnavailableError as exc:
            written.error = exc
            answers = answers_of(exc, changes)
        doubtful = {path for path, answer in answers.items() if is_unknown(answer)}
        if doubtful:
            looked_up = yield from self._look_up(consumer, moves, paths, changes, doubtful)
            answers = {**answers, **looked_up}
        for path, key in paths.items():
            answer = answers[path]
            if isinstance(answer, StoreUnavailableError):
                if is_unknown(answer):
                    written.unknown.add(key)
            elif answer is None:
                (written.lost if path in doubtful else written.refused).add(key)
            else:
                offset, position = moves[key]
                written.moved[key] = Offset(position, cast("Version", answer), offset.claim)
        if not any(isinstance(answer, StoreUnavailableError) for answer in answers.values()):
            written.error = None
        return written

    def _changed_late(
        self, consumer: str, refused: Mapping[PartitionKey, Offset]
    ) -> Work[dict[PartitionKey, Offset]]:
        """Those of these offsets that only their claim changed since they were known, as they are
        now.
        """
        paths = {
            self._paths.offset(key): key
            for key, offset in refused.items()
            if offset.claim is not None and self._is_of_claim(key, offset)
        }
        found = (yield Read(paths)) if paths else {}
        return {
            key: dataclasses.replace(offset, claim=refused[key].claim)
            for key, offset in self._decoded(found).items()
            if offset.unreadable is None and self._is_by(consumer, key, refused[key], found)
        }

    def _is_of_claim(self, key: PartitionKey, offset: Offset) -> bool:
        """Whether this consumer has not taken the partition over since it knew this offset. Asked
        after a record was read, for that one's version.
        """
        return self._claims.get(key) is offset.claim

    def _is_by(
        self, consumer: str, key: PartitionKey, offset: Offset, found: Mapping[str, Record]
    ) -> bool:
        """Whether what was found was written by a consumer, by the claim that knew this offset: a
        take-over by this same consumer, after its session was over, may write the same value.
        """
        path = self._paths.offset(key)
        return (
            path in found
            and _writer(found[path], path) == consumer
            and self._is_of_claim(key, offset)
        )

    def _look_up(
        self,
        consumer: str,
        moves: Mapping[PartitionKey, tuple[Offset, Position]],
        paths: Mapping[str, PartitionKey],
        changes: Mapping[str, Change],
        doubtful: Collection[str],
    ) -> Work[dict[str, Version | None]]:
        """What came of those of these changes that got no answer, as far as that can be known: the
        version that each made; None where others have the partition now. Who stood still for long
        hears of others, not of a store that was silent. The rest may still be made.
        """
        try:
            found = yield Read(doubtful)
        except StoreUnavailableError:
            return {}
        looked_up: dict[str, Version | None] = {}
        for path in doubtful:
            if not self._is_by(consumer, paths[path], moves[paths[path]][0], found):
                looked_up[path] = None
            elif (
                found[path].value == changes[path].value
                and found[path].version != changes[path].version
            ):
                looked_up[path] = found[path].version
        return looked_up

    def _decoded(self, found: Mapping[str, Record]) -> dict[PartitionKey, Offset]:
        decoded: dict[PartitionKey, Offset] = {}
        for path, record in found.items():
            key = self._paths.partition_key(path)
            if key is None:
                continue
            try:
                position = Position(*decode_offset(record.value, path))
            except UnsupportedFormatError as exc:
                decoded[key] = Offset(UNSET, record.version, unreadable=exc)
            else:
                decoded[key] = Offset(position, record.version)
        return decoded


@dataclasses.dataclass
class Written:
    """The outcome of each of several offsets; those that are missing were not applied."""

    moved: dict[PartitionKey, Offset] = dataclasses.field(default_factory=dict)
    refused: set[PartitionKey] = dataclasses.field(default_factory=set)
    """Not moved, for they were changed since they were known."""
    lost: set[PartitionKey] = dataclasses.field(default_factory=set)
    """Others have them, and there was no answer before: moved or not."""
    unknown: set[PartitionKey] = dataclasses.field(default_factory=set)
    """They may be moved, or may be yet."""
    error: StoreUnavailableError | None = None
    """What kept some from being moved, or from being known to be."""

    def followed_by(self, again: Written) -> Written:
        """After some of the refused ones were tried once more."""
        tried = again.moved.keys() | again.refused | again.lost | again.unknown
        return Written(
            self.moved | again.moved,
            (self.refused - tried) | again.refused,
            self.lost | again.lost,
            self.unknown | again.unknown,
            self.error or again.error,
        )


def _failed(written: Written, error: StoreUnavailableError) -> StoreUnavailableError:
    """The error of a commit that says what became of each partition."""
    made = written.moved or written.lost or written.unknown
    failed = StoreUnavailableError(
        error.text,
        outcome=Outcome.UNKNOWN if made else Outcome.NOT_APPLIED,
        **error.facts
        | {
            "committed": sorted(written.moved),
            "refused": sorted(written.refused),
            "unknown": sorted(written.unknown | written.lost),
        },
    )
    failed.__cause__ = error
    return failed


def _writer(record: Record, path: str) -> str | None:
    """Who wrote an offset; None if its record can't be read."""
    try:
        return offset_writer(record.value, path)
    except UnsupportedFormatError:
        return None
