"""Walking the chain's headers forward, without skipping one."""

from __future__ import annotations

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.format.header import Header
from hqueue.log.decoding import decoded_headers
from hqueue.log.ports import Row, header_of
from hqueue.log.steps import Headers, Newest, Work
from hqueue.log.tail import LogPosition
from hqueue.runtime.clock import Deadline

__all__ = ["WALKED_HEADERS", "BrokenOffError", "HeaderWalk", "walk_from"]

WALKED_HEADERS = 500
LOOKS_MAX = 5


class BrokenOffError(Exception):
    """The chain does not go on where what was seen of it ends."""


class HeaderWalk:
    """Every header from a position on, each once and in order. Not thread-safe.

    Args:
        partition: the partition.
        end: where it begins.
    """

    def __init__(self, partition: int, end: LogPosition) -> None:
        self._partition = partition
        self._shorter = 0
        self.end = end
        """The position behind the last header that was seen."""

    def page(self) -> Work[list[tuple[Row, Header]]]:
        """The next headers; fewer than `WALKED_HEADERS` where the log ends. One try.

        All of them count as seen then, or none if it raises.

        Raises:
            BrokenOffError: the log goes on elsewhere: it was truncated, or collected up to here.
            StoreUnavailableError: that is not known yet. Try again.
            CorruptLogError: a header can't be read.
        """
        rows: list[Row] = yield Headers(self._partition, self.end.slot, WALKED_HEADERS)
        if not rows:
            yield from self._check_end()
        seen, end = [], self.end
        for row, header in (yield from decoded_headers(rows)):
            if (row.slot, header.ordinal) != end:
                raise BrokenOffError
            seen.append((row, header))
            end = LogPosition.after(header)
        self._shorter = 0
        self.end = end
        return seen

    def _check_end(self) -> Work[None]:
        """Nothing follows: so the batch before ends here, unless the log was truncated.

        Or a deposed server answered, which knows less. It ends soon after it goes on, so another
        look is worth it.
        """
        end = LogPosition(0, 0)
        if self.end.slot:
            before: Row | None = yield Newest(self._partition, self.end.slot - 1)
            if before is not None:
                end = LogPosition.after(header_of(before))
        if end == self.end:
            return
        self._shorter += 1
        if end.slot < self.end.slot and self._shorter < LOOKS_MAX:
            raise StoreUnavailableError(
                "the log seems to end before a position that it had reached",
                outcome=Outcome.NOT_APPLIED,
                partition=self._partition,
            )
        raise BrokenOffError


def walk_from(partition: int, start: int, deadline: Deadline) -> Work[HeaderWalk]:
    """A walk that begins with the batch that covers an ID, or with the oldest that is kept.

    Raises:
        StoreUnavailableError: the store stayed away until the deadline.
    """

    def look() -> Work[LogPosition]:
        row: Row | None = yield Newest(partition, start)
        if row is None:
            rows: list[Row] = yield Headers(partition, 0, 1)
            row = rows[0] if rows else None
        return LogPosition(0, 0) if row is None else LogPosition.before(row)

    return HeaderWalk(partition, (yield from deadline.insist(look)))
