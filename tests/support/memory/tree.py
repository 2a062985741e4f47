"""Records in memory, some of them with an owner at whose end they go."""

from __future__ import annotations

import dataclasses
import threading
from collections import defaultdict
from collections.abc import Callable

from hqueue.metadata.ports import Guard, Record, Version
from hqueue.runtime.waiting import Condition

__all__ = ["Entry", "MemoryTree"]


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A record, and the session that owns it; None for one that stays."""

    record: Record
    owner: int | None

    @property
    def value(self) -> bytes:
        return self.record.value

    @property
    def version(self) -> Version:
        return self.record.version


class MemoryTree:
    """The records of a server. Used under the lock of `changed`."""

    def __init__(self) -> None:
        self.changed = Condition(threading.RLock())
        """Notified of each change."""
        self.changes = 0
        self._entries: dict[str, Entry] = {}
        self._watches: dict[str, set[Callable[[str], None]]] = defaultdict(set)

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def put(self, key: str, value: bytes, owner: int | None = None) -> Version:
        """Create a record, or change its value."""
        assert key.startswith("/"), key
        assert all(segment not in ("", ".", "..") for segment in key[1:].split("/")), key
        known = self._entries.get(key)
        version = Version(0 if known is None else known.version + 1)
        self._change()
        self._entries[key] = Entry(
            Record(value, version, self.changes), owner if known is None else known.owner
        )
        self._report(key)
        return version

    def remove(self, key: str) -> None:
        del self._entries[key]
        self._change()
        self._report(key)

    def watch(self, key: str, on_change: Callable[[str], None]) -> None:
        """Report the next change of a record."""
        self._watches[key].add(on_change)

    def remove_all(self, owner: int) -> None:
        """Remove what a session owns."""
        for key in [key for key, entry in self._entries.items() if entry.owner == owner]:
            self.remove(key)

    def holds(self, guard: Guard | None) -> bool:
        """Whether a change with this guard may be made."""
        found = None if guard is None else self.get(guard.key)
        return guard is None or (found is not None and found.version == guard.version)

    def below(self, key: str) -> list[str]:
        return [each for each in self._entries if each.startswith(f"{key}/")]

    def exists(self, key: str) -> bool:
        """Whether there is a record, or one below it."""
        return key in self._entries or bool(self.below(key))

    def view(self, prefix: str, depth: int) -> dict[str, Record]:
        """The records so many segments below a prefix."""
        slashes = prefix.count("/") + depth
        return {
            key: self._entries[key].record
            for key in self.below(prefix)
            if key.count("/") == slashes
        }

    def _report(self, key: str) -> None:
        for on_change in self._watches.pop(key, ()):
            on_change(key)

    def _change(self) -> None:
        self.changes += 1
        self.changed.notify_all()
