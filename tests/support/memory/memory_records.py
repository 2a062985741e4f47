"""Versioned records in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from hqueue.metadata.ports import ANY, NEW, Change, Guard, Record, Version
from tests.support.memory.tree import MemoryTree

__all__ = ["Ask", "MemoryRecords"]

Answer = TypeVar("Answer")


class Ask(Protocol):
    def __call__(self, operation: Callable[[], Answer]) -> Answer: ...


class MemoryRecords:
    """The `Records` in memory.

    Args:
        tree: what the server has.
        ask: does something at the server, once the session is connected.
    """

    def __init__(self, tree: MemoryTree, ask: Ask) -> None:
        self._tree = tree
        self._ask = ask

    def keys(self, prefix: str, depth: int) -> Sequence[str]:
        """As `Records.keys`."""
        end = prefix.count("/") + depth + 1

        def look() -> Sequence[str]:
            segments = (key.split("/") for key in self._tree.below(prefix))
            return sorted({"/".join(each[:end]) for each in segments if len(each) >= end})

        return self._ask(look)

    def list(self, prefix: str, depth: int) -> Mapping[str, Record]:
        """As `Records.list`."""
        return self._ask(lambda: self._tree.view(prefix, depth))

    def read(self, keys: Iterable[str]) -> Mapping[str, Record]:
        """As `Records.read`."""
        wanted = [*keys]
        return self._ask(lambda: self._read(wanted))

    def create(self, values: Mapping[str, bytes]) -> Mapping[str, Record]:
        """As `Records.create`."""

        def create_missing() -> Mapping[str, Record]:
            for key, value in values.items():
                if self._tree.get(key) is None:
                    self._tree.put(key, value)
            return self._read(values)

        return self._ask(create_missing)

    def write(
        self, changes: Mapping[str, Change], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, Version | None]:
        """As `Records.write`."""
        return self._ask(
            lambda: {
                key: self._write(key, change) if self._tree.holds((guards or {}).get(key)) else None
                for key, change in changes.items()
            }
        )

    def remove(
        self, versions: Mapping[str, Version], guards: Mapping[str, Guard] | None = None
    ) -> Mapping[str, bool | None]:
        """As `Records.remove`."""
        return self._ask(
            lambda: {
                key: self._tree.holds((guards or {}).get(key)) and self._remove(key, version)
                for key, version in versions.items()
            }
        )

    def delete(self, versions: Mapping[str, Version], *, levels_above: int = 0) -> Collection[str]:
        """As `Records.delete`. What leads to a record is no node of its own here."""

        def remove() -> Collection[str]:
            stay = set()
            for key, version in versions.items():
                known = self._tree.get(key)
                if known is not None and (
                    version not in (ANY, known.version) or self._tree.below(key)
                ):
                    stay.add(key)
                elif known is not None:
                    self._tree.remove(key)
            return stay

        return self._ask(remove)

    def _read(self, keys: Iterable[str]) -> Mapping[str, Record]:
        found = ((key, self._tree.get(key)) for key in keys)
        return {key: entry.record for key, entry in found if entry is not None}

    def _write(self, key: str, change: Change) -> Version | None:
        known = self._tree.get(key)
        expected = NEW if known is None else known.version
        if change.version == expected or (change.version == ANY and known is not None):
            return self._tree.put(key, change.value)
        return None

    def _remove(self, key: str, version: Version) -> bool | None:
        known = self._tree.get(key)
        if known is None or version not in (ANY, known.version):
            return False
        if self._tree.below(key):
            return None
        self._tree.remove(key)
        return True
