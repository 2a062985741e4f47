"""Records that are there for as long as the session that created them."""

from __future__ import annotations

from collections.abc import Mapping

from hqueue.errors import HQueueError, InvalidInputError, Outcome, StoreUnavailableError
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.managers.generations import GenerationRecords, check_parts
from hqueue.metadata.managers.layout import owners_generation
from hqueue.metadata.outcomes import PartlyDoneError, answers_of, partly_done, unknown_if_made
from hqueue.metadata.ports import ANY, NEW, Change, MetadataStore, Version
from hqueue.metadata.steps import Work
from hqueue.runtime.logs import Log
from hqueue.runtime.stepwise import asked, stepwise
from hqueue.runtime.turn import Turn

__all__ = ["PresentRecords"]

logger = Log(__name__)

TURN_S = 600.0
"""How long a change waits for those before it, each of which is bounded."""


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
        self._changing = Turn()

    @stepwise
    def check_version(self, version: Version) -> Work[None]:
        """Like `FieldRecords.check_version`."""
        yield from super().check_version.steps(version)
        if version not in (ANY, NEW) and not check_parts(version, self._node_version_max):
            raise InvalidInputError(
                "this store never assigns such a version: pass the version of a record "
                "that was read or written",
                version=version,
            )

    def _write(self, changes: Mapping[str, Change]) -> Work[Mapping[str, Version | None]]:
        new = {key: each.value for key, each in changes.items() if each.version == NEW}
        rest = {key: each for key, each in changes.items() if key not in new}
        done: dict[str, Version | None] = {}
        if rest:
            done = yield from self._generations.write.steps(rest)
        if new:
            creation = self._generations.create_present.steps(new)
            try:
                with unknown_if_made(done):
                    done |= yield from self._changing.take(creation, TURN_S, _late)
            except StoreUnavailableError as exc:
                raise partly_done(exc, answers_of(exc, new) | done) from exc
        return done

    def _remove(self, versions: Mapping[str, Version]) -> Work[Mapping[str, bool | None]]:
        # Else a record that this session creates just now went, too.
        return self._changing.take(self._remove_in_turn(versions), TURN_S, _late)

    def _remove_in_turn(self, versions: Mapping[str, Version]) -> Work[Mapping[str, bool | None]]:
        try:
            removed = yield from self._generations.remove.steps(versions)
        except PartlyDoneError as exc:
            yield from self._release(exc.answers)
            raise
        yield from self._release(removed)
        return removed

    def _release(self, removed: Mapping[str, object]) -> Work[None]:
        """What was deleted takes up no room in this session any more."""
        keys = [key for key, done in removed.items() if done is True]
        try:
            yield asked(self._store.ephemerals.release, keys)
        except HQueueError as exc:
            logger.warning(
                "deleted records still take up room in the session with ZooKeeper: %s", exc
            )


def _late() -> StoreUnavailableError:
    return StoreUnavailableError(
        "earlier changes of this session's records are still under way: try again",
        outcome=Outcome.NOT_APPLIED,
    )
