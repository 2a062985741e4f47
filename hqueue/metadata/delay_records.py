"""Keeps delayed messages in records beside the record of their owner: a share group or a
subscriber.

A record of delays is made before the owner's record names it, and counts as soon as that does. A
record that is no longer named is deleted afterwards. So wherever a writer is cut off, each message
lies in one record that counts. At worst a record is left that does not count, and takes room until
the group or the subscriber is reset or deleted.
"""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.metadata.delays import DELAYED_TOGETHER_MAX, Delay, Delayed, merged_with
from hqueue.metadata.encoding import decode_fields, encode_fields, list_of, text_of
from hqueue.metadata.ports import Change, MetadataStore, Version
from hqueue.metadata.steps import Create, Delete, OnStore, Read, Work, Write
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.stepwise import stepwise
from hqueue.settings.limits import MESSAGE_ID_MAX, TIMESTAMP_MS_MAX
from hqueue.settings.numbers import check_whole

__all__ = ["Addition", "DelayRecords", "decode_delayed", "encode_delayed"]

UNPACKED_BYTES_MAX = 4 * 1024 * 1024
DELIVERIES_MAX = 2**31


class Addition(NamedTuple):
    """The result of `DelayRecords.add`."""

    delays: tuple[Delay, ...] = ()
    """The records that the owner's record must name."""
    made: tuple[str, ...] = ()
    """The names of those records that it does not name yet."""


class DelayRecords(OnStore):
    """The records of delays of one partition, for one group or subscriber. One at a time uses it.

    Args:
        store: keeps the records.
        path: the path below which they lie.
        clock: as `OnStore` takes it.
    """

    def __init__(self, store: MetadataStore, path: str, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(store, clock)
        self._path = path
        self._doubtful: set[str] = set()
        """Records that the owner's record may no longer name, or may name already, by a write that
        got no answer."""

    @stepwise
    def add(self, delays: Sequence[Delay], waiting: Collection[Delayed]) -> Work[Addition]:
        """Make records of further messages, merged with those of present records. The caller then
        writes the owner's record, and calls `written` or `refused` if the outcome is known.

        Args:
            delays: the records that the owner's record names, with the messages that it says.
            waiting: the further messages.
        """
        merged = merged_with(delays, len(waiting))
        messages = list(waiting)
        if merged:
            found = yield Read([self._path_of(each.name) for each in merged])
            for path, record in found.items():
                messages += decode_delayed(record.value, path)
        messages.sort()
        values: dict[str, bytes] = {}
        made: list[Delay] = []
        for first in range(0, len(messages), DELAYED_TOGETHER_MAX):
            some = messages[first : first + DELAYED_TOGETHER_MAX]
            made.append(Delay(uuid.uuid4().hex, some[0].due_ms, len(some)))
            values[self._path_of(made[-1].name)] = encode_delayed(some)
        names = tuple(each.name for each in made)
        self._doubtful.update(names)
        try:
            yield Create(values)
        except StoreUnavailableError as exc:
            if exc.outcome is Outcome.NOT_APPLIED:  # Else they would grow in number for hours.
                self._doubtful.difference_update(names)
            raise
        self._doubtful.update(each.name for each in merged)
        kept = [each for each in delays if each not in merged]
        return Addition((*kept, *made), names)

    @stepwise
    def written(self, named: Iterable[str]) -> Work[None]:
        """Note that the owner's record was certainly written, and delete records that it does not
        name and that no earlier write can name any more.

        Args:
            named: all records that the owner's record names.
        """
        if self._doubtful:
            self._doubtful.difference_update(named)
            if (yield from self.drop.steps(sorted(self._doubtful))):
                self._doubtful.clear()

    @stepwise
    def refused(self, made: Sequence[str]) -> Work[None]:
        """Note that the write that should have named these new records was certainly not made."""
        if made and (yield from self.drop.steps(made)):
            self._doubtful.difference_update(made)

    @stepwise
    def drop(self, names: Iterable[str]) -> Work[bool]:
        """Delete records that no owner's record names or will name. Returns whether they were
        deleted; if not, they stay.
        """
        paths = [self._path_of(each) for each in names]
        try:
            found = yield Read(paths)
            yield Delete({path: record.version for path, record in found.items()})
        except StoreUnavailableError:
            return False
        return True

    @stepwise
    def read(self, name: str) -> Work[tuple[list[Delayed], Version | None]]:
        """The messages of a record, sorted, and its version; no messages and None if the record is
        gone.
        """
        path = self._path_of(name)
        found = yield Read([path])
        if path not in found:
            return [], None
        return decode_delayed(found[path].value, path), found[path].version

    @stepwise
    def shorten(self, name: str, left: Sequence[Delayed], version: Version) -> Work[bool]:
        """Leave only these messages in a record, or delete it if there are none. Returns whether
        the record had that version.
        """
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
