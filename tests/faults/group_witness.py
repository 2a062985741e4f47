"""What writes down the offsets that the consumers of a process write, and what came of it."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from unittest import mock

from hqueue import PartitionKey
from hqueue.groups.offsets import GroupOffsets, Offset, Position, Written
from hqueue.metadata.steps import Work
from hqueue.runtime.stepwise import stepwise

from .group_history import CLAIM, COMMIT, GroupRecorder

__all__ = ["GroupWitness"]

_TAKE_OVER, _WRITE = GroupOffsets.take_over, GroupOffsets._write

Moves = Mapping[PartitionKey, tuple[Offset, Position]]

_claims: contextvars.ContextVar[bool] = contextvars.ContextVar("_claims", default=False)
"""Whether this thread, or this task of a loop, takes partitions over."""


class GroupWitness:
    """Stands between all consumers of this process and their groups' offsets, while it is entered.

    Versions are what the store answered. It changes nothing of what is written.

    Args:
        recorder: of the process.
    """

    def __init__(self, recorder: GroupRecorder) -> None:
        self._recorder = recorder
        self._numbers = itertools.count()
        self._claims: dict[tuple[str, int], int] = {}
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> GroupWitness:
        @stepwise
        def take_over(
            offsets: GroupOffsets,
            consumer: str,
            partitions: Collection[PartitionKey],
            *claimed: Callable[[], Work[bool]],
        ) -> Work[dict[PartitionKey, Offset]]:
            bound = _TAKE_OVER.__get__(offsets, GroupOffsets)
            before = _claims.set(True)
            try:
                return (yield from bound.steps(consumer, partitions, *claimed))
            finally:
                _claims.reset(before)

        def write(offsets: GroupOffsets, consumer: str, moves: Moves) -> Work[Written]:
            return self._write(offsets, consumer, moves)

        self._patches.enter_context(mock.patch.object(GroupOffsets, "take_over", take_over))
        self._patches.enter_context(mock.patch.object(GroupOffsets, "_write", write))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._patches.close()

    def claim(self, consumer: str, partition: int) -> int:
        """The version of a consumer's last take-over of a partition."""
        return self._claims[consumer, partition]

    def _write(self, offsets: GroupOffsets, consumer: str, moves: Moves) -> Work[Written]:
        kind = CLAIM if _claims.get() else COMMIT
        # Each partition's outcome is one of its own: what is not known of one is known of others.
        numbers = {key: next(self._numbers) for key in moves}
        for key, (_, to) in moves.items():
            last = self._claims.get((consumer, key.partition))
            tried = {key.partition: (int(to.next), last)}
            self._recorder.trying(numbers[key], consumer, kind, tried)
        written = yield from _WRITE(offsets, consumer, moves)
        for key, offset in written.moved.items():
            version = int(offset.version)
            if kind == CLAIM:
                self._claims[consumer, key.partition] = version
            self._recorder.written(numbers[key], {key.partition: version})
        for key in written.refused:
            self._recorder.written(numbers[key], {})
        return written
