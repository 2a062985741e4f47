"""Records of one kind as objects: listed, watched, and those that can't be read left out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.ports import MetadataStore, Record, Watch
from hqueue.metadata.steps import List, Work
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import BackgroundLoop

__all__ = ["Directory"]

logger = Log(__name__)

Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value")

_Read = tuple[Record, tuple[Name, Value] | UnsupportedFormatError | None]
"""A record, and what it says; why it can't be read; None where it is nothing of this kind."""


class Directory(Generic[Name, Value]):
    """What lies this many segments below a prefix, by name.

    Args:
        store: where it lies.
        prefix: what it lies below.
        depth: how many segments below.
        decode: reads the record at a key, with the help of those beside it; None where that is
            nothing of this kind. What it raises as `UnsupportedFormatError` is logged.
        what: what a record is called in the log.
        alone: whether each record is read without the help of others. What a watch saw before is
            then not read again: of thousands of records one changes.
    """

    def __init__(
        self,
        store: MetadataStore,
        prefix: str,
        depth: int,
        decode: Callable[[str, Mapping[str, Record]], tuple[Name, Value] | None],
        what: str,
        *,
        alone: bool = False,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._depth = depth
        self._decode = decode
        self._what = what
        self._alone = alone

    def list(self) -> Work[dict[Name, Value]]:
        """All there is now."""
        return self.view((yield List(self._prefix, self._depth)))

    def inspect(self) -> Work[tuple[dict[Name, Value], dict[str, UnsupportedFormatError]]]:
        """All there is now, and what is wrong with each record that can't be read, by its key."""
        read = self._read((yield List(self._prefix, self._depth)), {})
        unreadable = {
            key: said for key, (_, said) in read.items() if isinstance(said, UnsupportedFormatError)
        }
        return _view(read), unreadable

    def watch(
        self,
        listener: Callable[[dict[Name, Value]], None],
        loop: BackgroundLoop | None = None,
    ) -> Watch:
        """Tell a listener what there is; as `MetadataStore.watch`."""
        known: dict[str, _Read[Name, Value]] = {}

        def on_change(found: Mapping[str, Record]) -> None:
            nonlocal known
            known = self._read(found, known if self._alone else {})
            listener(_view(known))

        return self._store.watch(self._prefix, self._depth, on_change, loop)

    def view(self, found: Mapping[str, Record]) -> dict[Name, Value]:
        """These records as objects."""
        return _view(self._read(found, {}))

    def _read(
        self, found: Mapping[str, Record], known: Mapping[str, _Read[Name, Value]]
    ) -> dict[str, _Read[Name, Value]]:
        """What each record says; of those that are known already it is taken over."""
        read: dict[str, _Read[Name, Value]] = {}
        for key in sorted(found):
            record, before = found[key], known.get(key)
            if before is not None and before[0] == record:
                read[key] = before
                continue
            try:
                read[key] = record, self._decode(key, found)
            except UnsupportedFormatError as exc:
                logger.warning(
                    "the record of %s can't be read, and is left out: %s", self._what, exc
                )
                read[key] = record, exc
        return read


def _view(read: Mapping[str, _Read[Name, Value]]) -> dict[Name, Value]:
    return dict(said for _, said in read.values() if isinstance(said, tuple))
