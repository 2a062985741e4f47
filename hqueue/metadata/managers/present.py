"""Records that are there for as long as the session that created them."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from hqueue.errors import HQueueError, InvalidInputError, StoreUnavailableError
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.managers.generations import GenerationRecords, check_parts
from hqueue.metadata.managers.layout import owners_generation
from hqueue.metadata.outcomes import PartlyDoneError, answers_of, partly_done, unknown_if_made
from hqueue.metadata.ports import ANY, NEW, Change, MetadataStore, Version
from hqueue.runtime.fork import register
from hqueue.runtime.logs import Log

__all__ = ["PresentRecords"]

logger = Log(__name__)


class PresentRecords(BlobRecords):
    """`FieldRecords`, each of which disappears with the session that created it.

    A record that is changed stays with the session that created it: to take a record over, delete
    and create it. No version comes a second time, even if a record was deleted and created again:
    see `hqueue.metadata.managers.generations`. All changes of a session's records must go through
    one object of this class.

    Args:
        store: the session.
        version_max: the largest version that a node can have there.
    """

    def __init__(self, store: MetadataStore, version_max: int = 2**31 - 1) -> None:
        self._generations = GenerationRecords(store, owners_generation)
        super().__init__(self._generations)
        self._node_version_max = version_max
        self._store = store
        self._lock = threading.RLock()
        register(self)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()

    def check_version(self, version: Version) -> None:
        """Like `FieldRecords.check_version`."""
        super().check_version(version)
        if version not in (ANY, NEW) and not check_parts(version, self._node_version_max):
            raise InvalidInputError(
                "this store never gives a record such a version: give the version of a record "
                "that was read or written",
                version=version,
            )

    def _write(self, changes: Mapping[str, Change]) -> Mapping[str, Version | None]:
        new = {key: each.value for key, each in changes.items() if each.version == NEW}
        rest = {key: each for key, each in changes.items() if key not in new}
        done = dict(self._records.write(rest)) if rest else {}
        if new:
            try:
                with unknown_if_made(done), self._lock:
                    done |= self._generations.create_present(new)
            except StoreUnavailableError as exc:
                raise partly_done(exc, answers_of(exc, new) | done) from exc
        return done

    def _remove(self, versions: Mapping[str, Version]) -> Mapping[str, bool | None]:
        with self._lock:  # Else a record that this session creates just now went, too.
            try:
                removed = self._records.remove(versions)
            except PartlyDoneError as exc:
                self._release(exc.answers)
                raise
            self._release(removed)
        return removed

    def _release(self, removed: Mapping[str, object]) -> None:
        """What was deleted takes up no room in this session any more."""
        try:
            self._store.ephemerals.release([key for key, done in removed.items() if done is True])
        except HQueueError as exc:
            logger.warning(
                "deleted records still take up room in the session with ZooKeeper: %s", exc
            )
