"""The record of the keys that sign notifications of appends."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hqueue.metadata.append_keys import AppendKeys
from hqueue.metadata.directory import Directory
from hqueue.metadata.encoding import decode_append_keys, encode_append_keys
from hqueue.metadata.paths import Paths
from hqueue.metadata.ports import NEW, Change, MetadataStore, Record, Watch
from hqueue.metadata.steps import OnStore, Read, Work, Write
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.stepwise import stepwise

__all__ = ["AppendKeyRecord"]

SECRET_DEPTH = 1


class AppendKeyRecord(OnStore):
    """The record of the keys that sign notifications of appends. Thread-safe.

    Only clients that ``zookeeper_acl`` allows to read can read it. A client that can read the keys
    can sign batches.
    """

    def __init__(self, store: MetadataStore, paths: Paths) -> None:
        super().__init__(store)
        self._path = paths.append_keys
        self._kept = Directory(
            store, paths.secrets, SECRET_DEPTH, self._decode, "the key of notifications"
        )

    @stepwise
    def read(self) -> Work[AppendKeys | None]:
        """Read the keys; None if there are none yet."""
        record = (yield Read([self._path])).get(self._path)
        return None if record is None else self._keys(record)

    @stepwise
    def replace(self, known: AppendKeys | None, keys: AppendKeys) -> Work[AppendKeys | None]:
        """Replace the known keys (None for none) by these, if nobody changed them meanwhile.
        Returns the keys that are in force then: these, those of a faster client, or None if the
        keys were deleted.
        """
        version = NEW if known is None else known.revision
        yield Write({self._path: Change(encode_append_keys(keys), version)})
        return (yield from self.read.steps())

    def watch(
        self, listener: Callable[[AppendKeys | None], None], loop: BackgroundLoop | None = None
    ) -> Watch:
        """Report the keys to a listener, as `MetadataStore.watch`; None if there are none, or none
        that this release can read.
        """
        return self._kept.watch(lambda kept: listener(kept.get(self._path)), loop)

    def _decode(self, path: str, found: Mapping[str, Record]) -> tuple[str, AppendKeys] | None:
        return (path, self._keys(found[path])) if path == self._path else None

    def _keys(self, record: Record) -> AppendKeys:
        return decode_append_keys(record.value, self._path, record.version)
