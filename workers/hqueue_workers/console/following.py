"""Follows a queue's new messages for a page, which shows each of them or says that it does not."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

from markupsafe import escape

from hqueue import InvalidInputError, MessageID, Scan
from hqueue.aio import Client, Queue, Scanner
from hqueue.doctor.findings import said
from hqueue.errors import StoreUnavailableError
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue_workers.console.reading import LOOKED_MAX, PARTITIONS_MAX, Filter, check_partitions
from hqueue_workers.console.rendering import Renderer, query
from hqueue_workers.console.streaming import event

__all__ = ["ROWS_PER_SECOND_MAX", "Following", "parse_reached"]

ROWS_PER_SECOND_MAX = 20
"""Further messages of a second are counted, and not shown."""
FOLLOWED_BYTES = 2 * 1024 * 1024
AGAIN_S = 1.0
"""The wait before the next attempt when the servers are away."""
REACHED_LENGTH_MAX = 4_096


class Following:
    """Follows some partitions of a queue, from their ends on, or from where another one was.

    While the servers are away it says so, and then continues where it was. Each event's ID says how
    far the page is, so a browser that connects again misses nothing. In place of messages that
    the page does not show, it gets a row that counts them: of more than `ROWS_PER_SECOND_MAX` in a
    second, of more than `reading.LOOKED_MAX` since a browser was connected, and of those that
    expired, or that can't be read.

    Args:
        client: the connection.
        renderer: renders the rows.
        queue: the queue's name.
        partition: the partition; None for all.
        wanted: which messages the page shows.
        reached: where the page was, from `parse_reached`; empty for the ends of the partitions.
    """

    def __init__(
        self,
        client: Client,
        renderer: Renderer,
        queue: str,
        *,
        partition: int | None,
        wanted: Filter,
        reached: Mapping[int, MessageID],
    ) -> None:
        self._client = client
        self._renderer = renderer
        self._name = queue
        self._partition = partition
        self._wanted = wanted
        self._reached = dict(reached)
        """For each partition, the first ID that the page has neither shown nor counted."""
        self._noted = dict(reached)
        """What the browser knows of this."""
        self._second_s = 0.0
        """When the second began in which so many messages were shown."""
        self._shown = 0
        self._left_out = 0
        self._left_out_first: MessageID | None = None

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The events ``state``, a sentence, and ``row``, a row of the table.

        Raises:
            HQueueError: the queue can't be followed, and a later attempt would fail, too.
        """
        while True:
            try:
                async with contextlib.aclosing(self._followed()) as events:
                    async for each in events:
                        yield each
            except StoreUnavailableError as exc:
                if left_out := self.pending(ending=True):
                    yield left_out
                yield self._event("state", f"{escape(said(exc))}. Trying again.")
            await asyncio.sleep(AGAIN_S)

    def pending(self, *, ending: bool = False) -> bytes:
        """What the page must learn although no event came for a while; empty if nothing.

        Args:
            ending: whether no further event comes.
        """
        if self._left_out:
            return self._left_out_row() if ending or self._second_is_over() else b""
        return self._event(None, "") if self._reached != self._noted else b""

    async def _followed(self) -> AsyncGenerator[bytes, None]:
        topics = [self._wanted.topic] if self._wanted.topic else []
        async with await self._client.queue(self._name) as queue:
            starts, missed = await self._starts(queue)
            if missed:
                text = f"The queue got {missed:,} messages while this page was not connected."
                yield self._gap(text, min(self._reached.values()))
            self._reached = starts
            yield self._event("state", "Following.")
            scans = {each: Scan(start, topics=topics) for each, start in starts.items()}
            scanner = queue.combined_partition_scanner(scans, follow=True, bytes_max=FOLLOWED_BYTES)
            async with scanner, contextlib.aclosing(self._rows(scanner)) as rows:
                async for each in rows:
                    yield each

    async def _starts(self, queue: Queue) -> tuple[dict[int, MessageID], int]:
        """Where to begin in each partition. Also returns how many messages before these positions
        the page misses, because they are too many to be read; 0 if it misses none.
        """
        known, ends, missed = {}, {}, 0
        for each in await queue.offsets([*check_partitions(queue, self._partition)]):
            at = each.partition
            # A queue that was created again ends before the old one's positions.
            known[at], ends[at] = min(self._reached.get(at, each.end), each.end), each.end
            if known[at] < each.end:
                before = await queue.count_before(at, known[at])
                missed += each.end_ordinal - max(before, each.beginning_ordinal)
        return (ends, missed) if missed > LOOKED_MAX else (known, 0)

    async def _rows(self, scanner: Scanner) -> AsyncGenerator[bytes, None]:
        lost = 0
        async for message in scanner:
            before, lost = lost, scanner.expired + scanner.skipped
            if lost > before:
                yield self._gap(f"{lost - before:,} messages expired, or can't be read.", None)
            self._reached[message.partition] = message.id + 1
            if not self._wanted.lets_through(message):
                continue
            if self._second_is_over():
                if self._left_out:
                    yield self._left_out_row()
                self._second_s, self._shown = _now_s(), 0
            if self._shown >= ROWS_PER_SECOND_MAX:
                self._left_out += 1
                first = self._left_out_first
                self._left_out_first = message.id if first is None else min(first, message.id)
                continue
            self._shown += 1
            row = self._renderer.fragment("row.html", queue=self._name, message=message)
            yield self._event("row", row)

    def _second_is_over(self) -> bool:
        return _now_s() - self._second_s >= 1

    def _left_out_row(self) -> bytes:
        count, first = self._left_out, self._left_out_first
        self._left_out, self._left_out_first = 0, None
        return self._gap(f"{count:,} messages were too many to show in a second.", first)

    def _gap(self, text: str, start: MessageID | None) -> bytes:
        """A row in place of messages that the page does not show, with a link to them."""
        address = None
        if start is not None:
            address = query(
                f"/queues/{self._name}/messages",
                partition=self._partition,
                start=start,
                topic=self._wanted.topic,
                key=self._wanted.key,
                text=self._wanted.text,
            )
        return self._event("row", self._renderer.fragment("gap.html", text=text, address=address))

    def _event(self, name: str | None, html: str) -> bytes:
        self._noted = dict(self._reached)
        return event(name, html, ",".join(f"{at}:{first}" for at, first in self._noted.items()))


def parse_reached(text: str) -> dict[int, MessageID]:
    """Parse the ID of an event: where a page was in each partition. An empty text is nowhere.

    Raises:
        InvalidInputError: it is not the ID of an event.
    """
    reached: dict[int, MessageID] = {}
    parts = text.split(",") if text else []
    if len(text) > REACHED_LENGTH_MAX or len(parts) > PARTITIONS_MAX:
        raise InvalidInputError("the ID of the last event is too long")
    for part in parts:
        partition, _, first = part.partition(":")
        if not (partition.isascii() and partition.isdigit() and len(partition) < 6):
            raise InvalidInputError("the ID of the last event is not one of this console")
        reached[int(partition)] = MessageID.parse(first)
    return reached


def _now_s() -> float:
    return SYSTEM_CLOCK.monotonic_ms() / 1e3
