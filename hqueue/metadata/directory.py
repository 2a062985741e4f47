"""Records of one kind as objects: listed, watched, and those that can't be read left out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.ports import MetadataStore, Record, Watch

__all__ = ["Directory"]

logger = logging.getLogger(__name__)

Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value")


class Directory(Generic[Name, Value]):
    """What lies so many segments below a prefix, by name.

    Args:
        store: where it lies.
        prefix: what it lies below.
        depth: how many segments below.
        decode: reads the record at a key, with the help of those beside it; None where that is
            nothing of this kind. What it raises as `UnsupportedFormatError` is logged.
        what: what a record is called in the log.
    """

    def __init__(
        self,
        store: MetadataStore,
        prefix: str,
        depth: int,
        decode: Callable[[str, Mapping[str, Record]], tuple[Name, Value] | None],
        what: str,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._depth = depth
        self._decode = decode
        self._what = what

    def list(self) -> dict[Name, Value]:
        """All there is now."""
        return self.view(self._store.records.list(self._prefix, self._depth))

    def watch(self, listener: Callable[[dict[Name, Value]], None]) -> Watch:
        """Tell a listener what there is; as `MetadataStore.watch`."""
        return self._store.watch(
            self._prefix, self._depth, lambda found: listener(self.view(found))
        )

    def view(self, found: Mapping[str, Record]) -> dict[Name, Value]:
        """These records as objects."""
        view = {}
        for key in sorted(found):
            try:
                decoded = self._decode(key, found)
            except UnsupportedFormatError as exc:
                logger.warning("%s is left out: %s", self._what, exc)
                continue
            if decoded is not None:
                name, value = decoded
                view[name] = value
        return view
