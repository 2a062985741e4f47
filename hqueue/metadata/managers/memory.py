"""Records of fields in memory: for one process, and for as long as it lives."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from hqueue.errors import InvalidInputError
from hqueue.metadata.fields import FieldChange, FieldRecord
from hqueue.metadata.ports import ANY, NEW, Version
from hqueue.runtime.steps import Give, Work
from hqueue.runtime.stepwise import Stepwise, paged, stepwise
from hqueue.settings.numbers import is_whole

__all__ = ["MemoryFields", "memory_of"]


PAGE = 256
"""Records that a scan gives at a time."""


class MemoryFields(Stepwise):
    """`FieldRecords` in memory. Thread-safe. Its work waits for nothing."""

    def __init__(self) -> None:
        self._records: dict[str, FieldRecord] = {}
        self._below: dict[str, set[str]] = {}
        """The records one segment below each prefix."""
        self._versions = itertools.count()
        self._lock = threading.RLock()

    @stepwise
    def is_partial(self) -> Work[Any, bool]:
        """Like `FieldRecords.is_partial`."""
        yield from ()
        return True

    @stepwise
    def check_version(self, version: Version) -> Work[Any, None]:
        """Like `FieldRecords.check_version`."""
        yield from ()
        if not is_whole(version, NEW):
            raise InvalidInputError(
                "this store never assigns such a version: pass the version of a record "
                "that was read or written",
                version=version,
            )

    @stepwise
    def read(self, keys: Iterable[str]) -> Work[Any, dict[str, FieldRecord]]:
        """Like `FieldRecords.read`."""
        yield from ()
        with self._lock:
            return {key: self._records[key] for key in filter(self._records.__contains__, keys)}

    @paged
    def scan(self, prefix: str, depth: int) -> Work[Any, None]:
        """Like `FieldRecords.scan`."""
        with self._lock:
            if depth == 1:
                keys = [*self._below.get(prefix, ())]
            else:
                segments = prefix.count("/") + depth
                within = (key for key in self._records if key.startswith(f"{prefix}/"))
                keys = [*filter(lambda key: key.count("/") == segments, within)]
        keys.sort()
        for first in range(0, len(keys), PAGE):
            found = yield from self.read.steps(keys[first : first + PAGE])
            yield Give([*found.items()])

    @stepwise
    def write(self, changes: Mapping[str, FieldChange]) -> Work[Any, dict[str, Version | None]]:
        """Like `FieldRecords.write`."""
        yield from ()
        with self._lock:
            return {key: self._write(key, change) for key, change in changes.items()}

    @stepwise
    def delete(self, versions: Mapping[str, Version]) -> Work[Any, dict[str, bool]]:
        """Like `FieldRecords.delete`."""
        yield from ()
        with self._lock:
            return {key: self._delete(key, version) for key, version in versions.items()}

    @stepwise
    def clear(self, prefix: str) -> Work[Any, None]:
        """Like `ClearableRecords.clear`."""
        with self._lock:
            for key in [*filter(lambda key: key.startswith(f"{prefix}/"), self._records)]:
                self._remove(key)
        yield from ()

    def _delete(self, key: str, version: Version) -> bool:
        known = self._records.get(key)
        if known is None or version not in (ANY, known.version):
            return False
        self._remove(key)
        return True

    def _write(self, key: str, change: FieldChange) -> Version | None:
        known = self._records.get(key)
        if known is None:
            if change.version != NEW:
                return None
        elif change.version not in (ANY, known.version):
            return None
        kept = {} if known is None or change.whole else known.fields
        version = Version(next(self._versions))
        self._below.setdefault(key.rpartition("/")[0], set()).add(key)
        self._records[key] = FieldRecord({**kept, **change.fields}, version)
        return version

    def _remove(self, key: str) -> None:
        del self._records[key]
        above = key.rpartition("/")[0]
        self._below[above].discard(key)
        if not self._below[above]:
            del self._below[above]


_memory: dict[str, MemoryFields] = {}
_memory_lock = threading.RLock()


def memory_of(root: str) -> MemoryFields:
    """This process's records below a root."""
    with _memory_lock:
        return _memory.setdefault(root, MemoryFields())
