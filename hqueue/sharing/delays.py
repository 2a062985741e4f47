"""Keeps the delayed messages of a share group, in records beside the window's, until they are due.

A consumer that meets delayed messages writes a record of them, sorted by time. The record counts as
soon as the window names it, and only gets shorter from then on: due messages are moved into the
window, which notes how far the move went, and are removed from the record afterwards. So each
message enters the window once, even if a consumer ends between two steps.
"""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hqueue.errors import StoreUnavailableError
from hqueue.metadata.encoding import decode_fields, encode_fields, list_of, text_of
from hqueue.metadata.ports import Change, MetadataStore, Version
from hqueue.metadata.steps import Create, Delete, OnStore, Read, Work, Write
from hqueue.runtime.clock import Clock
from hqueue.runtime.stepwise import stepwise
from hqueue.settings.limits import MESSAGE_ID_MAX, TIMESTAMP_MS_MAX
from hqueue.settings.numbers import check_whole
from hqueue.sharing.window import Delay, Fate, Mark, Move, Span, Window

__all__ = ["DELAYED_TOGETHER_MAX", "DelayRecords", "Delayed"]

DELAYED_TOGETHER_MAX = 10_000
"""The most messages in one record."""
MOVED_TOGETHER_MAX = 500
UNPACKED_BYTES_MAX = 4 * 1024 * 1024
DELIVERIES_MAX = 2**31


class Delayed(NamedTuple):
    """A message that is not due yet."""

    due_ms: int
    """When the message is due, in milliseconds since the epoch."""
    id: int
    deliveries: int
    """How often the message was delivered so far."""


class DelayRecords(OnStore):
    """The records of delays of one partition.

    Args:
        store: keeps the records.
        path: the path of the window's record. The records of delays lie below it.
        clock: as `OnStore` takes it.
    """

    def __init__(self, store: MetadataStore, path: str, clock: Clock) -> None:
        super().__init__(store, clock)
        self._path = path

    @stepwise
    def create(self, delayed: Iterable[Delayed]) -> Work[list[Delay]]:
        """Write records of these messages. They count as soon as the window names them."""
        waiting = sorted(delayed)
        made: dict[str, bytes] = {}
        delays: list[Delay] = []
        for first in range(0, len(waiting), DELAYED_TOGETHER_MAX):
            some = waiting[first : first + DELAYED_TOGETHER_MAX]
            delays.append(Delay(uuid.uuid4().hex, some[0].due_ms))
            made[self._path_of(delays[-1].name)] = encode_delayed(some)
        yield Create(made)
        return delays

    @stepwise
    def drop(self, delays: Sequence[Delay]) -> Work[None]:
        """Delete records that no window names or will name. If that fails, the records stay."""
        paths = [self._path_of(each.name) for each in delays]
        try:
            found = yield Read(paths)
            yield Delete({path: record.version for path, record in found.items()})
        except StoreUnavailableError:
            return

    @stepwise
    def settle(self, window: Window) -> Work[Window | None]:
        """Remove messages from the records that were moved into the window.

        Args:
            window: the window, as the store has it.

        Returns:
            The window without these moves, which the caller may write; None if another consumer
            changed a record meanwhile.
        """
        for move in window.moves:
            waiting, version = yield from self._read(move.name)
            left = [each for each in waiting if (each.due_ms, each.id) > (move.due_ms, move.id)]
            if len(left) < len(waiting):
                assert version is not None
                if not (yield from self._shorten(move.name, left, version)):
                    return None
            delays = [each for each in window.delays if each.name != move.name]
            if left:
                delays.append(Delay(move.name, left[0].due_ms))
            window = window._replace(
                delays=tuple(delays), moves=tuple(m for m in window.moves if m != move)
            )
        return window

    @stepwise
    def move(self, window: Window, now_ms: int, room: int) -> Work[Window]:
        """Move due messages into the window, some hundreds at most, and return the new window.

        Args:
            window: the window, after `settle`.
            now_ms: the current time, in milliseconds since the epoch.
            room: how many more unfinished messages the window may have.
        """
        room = min(room, MOVED_TOGETHER_MAX)
        for delay in sorted(window.delays, key=lambda each: each.due_ms):
            if room <= 0 or delay.due_ms > now_ms:
                break
            waiting, _ = yield from self._read(delay.name)
            due = waiting[: bisect_right(waiting, now_ms, key=lambda each: each.due_ms)][:room]
            if not due:  # The record is gone, as when the group was deleted.
                window = window._replace(delays=tuple(d for d in window.delays if d != delay))
                continue
            room -= len(due)
            late = [
                Span(each.id, each.id + 1, 1, Mark(Fate.AVAILABLE, each.deliveries)) for each in due
            ]
            move = Move(delay.name, due[-1].due_ms, due[-1].id)
            window = Window.of(
                window.begin,
                window.spans,
                [*window.late, *late],
                [d for d in window.delays if d != delay],
                [*window.moves, move],
            )
        return window

    def _read(self, name: str) -> Work[tuple[list[Delayed], Version | None]]:
        path = self._path_of(name)
        found = yield Read([path])
        if path not in found:
            return [], None
        return decode_delayed(found[path].value, path), found[path].version

    def _shorten(self, name: str, left: list[Delayed], version: Version) -> Work[bool]:
        path = self._path_of(name)
        if not left:
            return not (yield Delete({path: version}))
        written = yield Write({path: Change(encode_delayed(left), version)})
        return written[path] is not None

    def _path_of(self, name: str) -> str:
        return f"{self._path}/{name}"


def encode_delayed(delayed: Sequence[Delayed]) -> bytes:
    """The bytes of a record of delayed messages, which must be sorted."""
    packed = zlib.compress(json.dumps([list(each) for each in delayed]).encode(), 1)
    return encode_fields(packed=base64.b64encode(packed).decode())


def decode_delayed(data: bytes, path: str) -> list[Delayed]:
    """The messages of a record of delays, sorted. `path` is the record's, for errors.

    Raises:
        UnsupportedFormatError: the bytes are not a record of delays, or a later version wrote them.
    """
    return decode_fields(data, path, _delayed)


def _delayed(fields: dict[str, Any]) -> list[Delayed]:
    unpacking = zlib.decompressobj()
    data = unpacking.decompress(base64.b64decode(text_of(fields["packed"])), UNPACKED_BYTES_MAX)
    if not unpacking.eof:
        raise ValueError("the record is too long, or was cut off")
    return sorted(_one(*list_of(each)) for each in list_of(json.loads(data)))


def _one(due_ms: object, message_id: object, deliveries: object) -> Delayed:
    return Delayed(
        check_whole(due_ms, 0, TIMESTAMP_MS_MAX),
        check_whole(message_id, 0, MESSAGE_ID_MAX),
        check_whole(deliveries, 0, DELIVERIES_MAX),
    )
