"""What a group's leader has planned: which member should have which partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hqueue.errors import InvalidInputError, Outcome, StoreUnavailableError, UnsupportedFormatError
from hqueue.groups.assignors import Assignment
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import MetadataStore, PartitionKey, Watch
from hqueue.metadata.encoding import decode_plan, encode_plan
from hqueue.metadata.ports import ANY, NEW, VALUE_BYTES_MAX, Change, Record
from hqueue.metadata.steps import OnStore, Work, Write
from hqueue.runtime.logs import Log
from hqueue.runtime.stepwise import stepwise

__all__ = ["GroupPlan"]

logger = Log(__name__)


class GroupPlan(OnStore):
    """A record that the leader writes, and that all members follow. Thread-safe.

    The plan says which member should consume a partition; claims alone decide which one does. So a
    leader that is late, or two leaders at a time, can only cost time.

    Args:
        store: where it lies.
        paths: the group's.
    """

    def __init__(self, store: MetadataStore, paths: GroupPaths) -> None:
        super().__init__(store)
        self._paths = paths

    @stepwise
    def write(self, plan: Mapping[PartitionKey, str]) -> Work[None]:
        """Replace the plan, also another leader's.

        Raises:
            InvalidInputError: it is too large for a record.
            StoreUnavailableError: it may be written, or not. To be called again.
        """
        path, value = self._paths.plan, encode_plan(plan)
        if len(value) > VALUE_BYTES_MAX:
            raise InvalidInputError(
                "a group has more partitions than its plan can hold: subscribe to fewer queues",
                partitions=len(plan),
            )
        for version in (ANY, NEW):
            if (yield Write({path: Change(value, version)}))[path] is not None:
                return
        raise StoreUnavailableError(
            "other programs keep creating and deleting the group's plan: try again",
            outcome=Outcome.NOT_APPLIED,
            path=path,
        )

    def watch(self, listener: Callable[[Assignment | None], None]) -> Watch:
        """Report the plan, empty if there is none, None if it can't be read; as
        `MetadataStore.watch`.
        """

        def on_change(found: Mapping[str, Record]) -> None:
            record = found.get(self._paths.plan)
            plan: Assignment | None = {}
            if record is not None:
                try:
                    plan = decode_plan(record.value, self._paths.plan)
                except UnsupportedFormatError as exc:
                    logger.warning("a group's plan can't be read, and will be replaced: %s", exc)
                    plan = None
            listener(plan)

        return self._store.watch(self._paths.plans, 1, on_change)
