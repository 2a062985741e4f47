"""Committing offsets at once, or beside what a consumer does."""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping

from hqueue.errors import CommitFailedError, HQueueError
from hqueue.groups.offsets import Position
from hqueue.metadata import PartitionKey

__all__ = ["Committer", "OnCommit"]

logger = logging.getLogger(__name__)

OnCommit = Callable[[Mapping[PartitionKey, Position], "HQueueError | None"], None]

LATER_MAX = 1_000
"""So many commits wait; who wants one more waits as well."""

_Later = tuple[Mapping[PartitionKey, Position], "OnCommit | None"]


class Committer:
    """Commits one after the other, in the order in which it was asked. Thread-safe.

    What is committed later is done by a thread that ends when nothing is left. Of positions that
    wait, and that nobody waits for, only the latest are committed: however slow the store is, what
    waits is no more than one position a partition.

    Args:
        commit: commits positions, and returns the partitions for which that was refused.
    """

    def __init__(
        self, commit: Callable[[Mapping[PartitionKey, Position]], Collection[PartitionKey]]
    ) -> None:
        self._commit = commit
        self._committing = threading.Lock()
        self._work = threading.Condition()
        self._later: collections.deque[_Later] = collections.deque()
        self._running = False
        self._deciding = 0

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """While somebody finds out what to commit, and until that is done, or is to be done later:
        `flush` waits for it as well. Not to be waited for by who is in it.
        """
        with self._work:
            self._deciding += 1
        try:
            yield
        finally:
            with self._work:
                self._deciding -= 1
                self._work.notify_all()

    def commit(self, positions: Mapping[PartitionKey, Position]) -> None:
        """Commit now, after what was to be committed later.

        Raises:
            CommitFailedError: some are refused; the others are committed.
            StoreUnavailableError: with an outcome; some may be committed.
        """
        with self._work:
            self._work.wait_for(lambda: not self._running)
        if positions:
            self._carry_out(positions)

    def commit_later(
        self, positions: Mapping[PartitionKey, Position], on_commit: OnCommit | None = None
    ) -> None:
        """Commit soon, in another thread.

        Args:
            positions: what to commit.
            on_commit: called there with the positions, and with the error if there was one, which
                is logged if there is nobody to be called.
        """
        with self._work:
            if on_commit is None and self._later and self._later[-1][1] is None:
                positions = {**self._later.pop()[0], **positions}
            self._work.wait_for(lambda: len(self._later) < LATER_MAX)
            self._later.append((positions, on_commit))
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="hqueue-commit", daemon=True).start()

    def flush(self) -> None:
        """Wait until all that was decided is committed, or failed. The store's bounds hold."""
        with self._work:
            self._work.wait_for(lambda: not (self._running or self._deciding))

    def _run(self) -> None:
        while True:
            with self._work:
                if not self._later:
                    self._running = False
                    self._work.notify_all()
                    return
                positions, on_commit = self._later.popleft()
                self._work.notify_all()
            error: HQueueError | None = None
            try:
                self._carry_out(positions)
            except HQueueError as exc:
                error = exc
            if on_commit is None:
                if error is not None:
                    logger.warning("offsets were not committed: %s", error)
                continue
            try:
                on_commit(positions, error)
            except Exception:
                logger.exception("a callback of a commit raised an error")

    def _carry_out(self, positions: Mapping[PartitionKey, Position]) -> None:
        with self._committing:
            refused = self._commit(positions)
        if refused:
            raise CommitFailedError(
                "others have these partitions now, or somebody set their offsets",
                partitions=sorted(refused),
            )
