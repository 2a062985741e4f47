"""A consumer in its group: present, and with the partitions that are its own."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Collection, Mapping

from hqueue.errors import ClosedError, HQueueError
from hqueue.groups.assignors import Assignor, GroupView
from hqueue.groups.members import GroupMembers
from hqueue.groups.membership import Membership, Steps
from hqueue.groups.offsets import GroupOffsets, Offset
from hqueue.groups.paths import GroupPaths
from hqueue.message import MessageID
from hqueue.metadata import MetadataStore, PartitionKey, SessionState
from hqueue.metadata.owners import Owners
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock

__all__ = ["Changes", "GroupMember"]

logger = logging.getLogger(__name__)

RETRY_MS = 250
"""How long what was refused, or could not be asked for, is left alone."""


@dataclasses.dataclass
class Changes:
    """What became of a member's partitions since it was asked last."""

    assigned: dict[PartitionKey, Offset] = dataclasses.field(default_factory=dict)
    """Those that it has now, and where it begins."""
    revoked: set[PartitionKey] = dataclasses.field(default_factory=set)
    """Those that it is to give up: by `GroupMember.release`, when what was handed out of them is
    done with and committed. Until then nobody else has them."""
    lost: set[PartitionKey] = dataclasses.field(default_factory=set)
    """Those that it has not any more: another may have them already."""


class GroupMember:
    """Joins a group, claims what is its own, and says what it has to give up.

    A thread of its own watches the group and claims; the consumer's thread asks for `changes`, and
    commits and releases. Closed by `close`, which leaves the group at once.

    Args:
        store: the session by which it is present.
        paths: the group's.
        consumer: its ID, which no other has.
        streams: how many streams it has of each queue.
        assignor: who gets what.
        eager: as `Membership` takes it.
        start: where a partition begins of which the group has no offset.
        clock: where time comes from.

    Raises:
        HQueueError: as `GroupMembers.join`.
    """

    def __init__(
        self,
        store: MetadataStore,
        paths: GroupPaths,
        consumer: str,
        streams: Mapping[str, int],
        *,
        assignor: Assignor,
        eager: bool = False,
        start: Callable[[PartitionKey], MessageID],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.consumer = consumer
        self.failure: HQueueError | None = None
        """Why it is not in the group any more, and can't come back."""
        self._store = store
        self._start = start
        self._clock = clock
        self._owners = Owners(store, paths, "consumer")
        self._offsets = GroupOffsets(store, paths)
        self._membership = Membership(consumer, assignor, eager=eager)
        self._known: dict[PartitionKey, Offset] = {}
        self._changes = Changes()
        self._certain_until_ms = float("-inf")
        self._session_id: int | None = None
        self._members: Mapping[str, Mapping[str, int]] = {}
        self._claims: Mapping[PartitionKey, str] = {}
        self._partitions: Mapping[PartitionKey, str | None] = {}
        self._work = threading.Condition()
        self._pending = self._closed = False
        members = GroupMembers(store, paths, clock)
        self._registration = members.join(consumer, streams, self._fail)
        self._watches = [
            store.on_state(self._on_state, self._end),
            members.watch(self._on_members),
            self._owners.watch(self._on_claims),
        ]
        self._thread = threading.Thread(target=self._run, name="hqueue-group-member", daemon=True)
        self._thread.start()

    def see_partitions(self, partitions: Mapping[PartitionKey, str | None]) -> None:
        """The partitions that there are of the group's queues, with their regions' hosts."""
        with self._work:
            self._partitions = dict(partitions)
            self._seen()

    def changes(self) -> Changes:
        """What changed since this was called last."""
        with self._work:
            changes, self._changes = self._changes, Changes()
            return changes

    def certain(self) -> bool:
        """Whether nobody else can have its partitions now. Asks the store if that is not known.

        Asked before messages are handed out: a process that stood still learns only afterwards
        that its session is over.
        """
        if self._clock.monotonic_ms() >= self._certain_until_ms:
            session_id = self._session_id
            try:
                until_ms = self._store.confirm()
            except HQueueError as exc:
                logger.debug("the session is not confirmed now: %s", exc)
                return False
            with self._work:
                # What it claimed is that session's; another may have begun, and been confirmed.
                if session_id is None or not (
                    session_id == self._session_id == self._store.session_id
                ):
                    return False
                self._certain_until_ms = until_ms
        return self._clock.monotonic_ms() < self._certain_until_ms

    def commit(self, positions: Mapping[PartitionKey, MessageID]) -> Collection[PartitionKey]:
        """Commit offsets, in few round trips; those that were refused: others have them now.

        Raises:
            StoreUnavailableError: with an outcome; some may be committed.
        """
        with self._work:
            known = {key: self._known[key] for key in positions if key in self._known}
        moved = self._offsets.commit(
            self.consumer, {key: (offset, positions[key]) for key, offset in known.items()}
        )
        with self._work:
            self._known |= {key: offset for key, offset in moved.items() if key in self._known}
        return positions.keys() - moved.keys()

    def release(self, partitions: Collection[PartitionKey]) -> None:
        """Give up what was `Changes.revoked`.

        Raises:
            StoreUnavailableError: they are still its own, perhaps. To be called again.
        """
        with self._work:
            held = self._membership.held.intersection(partitions)
        self._owners.release(held)
        with self._work:
            for key in held & self._membership.held:
                self._membership.released(key)
                self._known.pop(key, None)
            self._notify()

    def close(self) -> None:
        """Leave the group: everything is given up at once. Never raises."""
        self._end()
        for watch in self._watches:
            watch.close()
        self._thread.join()
        try:
            self._owners.release(self._membership.held)
        except HQueueError as exc:
            logger.warning("claims stay until the session ends: %s", exc)
        self._registration.close()

    # What is heard of the group. The lock is held in what begins without `on`.

    def _on_members(self, members: Mapping[str, Mapping[str, int]]) -> None:
        with self._work:
            self._members = members
            self._seen()

    def _on_claims(self, claims: Mapping[PartitionKey, str]) -> None:
        with self._work:
            self._claims = claims
            self._seen()

    def _on_state(self, state: SessionState) -> None:
        with self._work:
            if state is SessionState.LOST:
                self._lose()
                self._session_id = None
            elif state is SessionState.CONNECTED and self._session_id != self._store.session_id:
                if self._session_id is not None:
                    self._lose()
                self._session_id = self._store.session_id
            self._notify()

    def _fail(self, error: HQueueError) -> None:
        self.failure = error
        self._end()

    def _end(self) -> None:
        with self._work:
            self._closed = True
            self._work.notify_all()

    def _seen(self) -> None:
        self._membership.see(GroupView(self._members, self._partitions, self._claims))
        self._notify()

    def _notify(self) -> None:
        self._pending = True
        self._work.notify_all()

    def _lose(self) -> None:
        lost = self._membership.lost()
        self._certain_until_ms = float("-inf")
        self._known.clear()
        untold = lost & self._changes.assigned.keys()
        for key in lost:
            self._changes.assigned.pop(key, None)
        self._changes.revoked.clear()
        self._changes.lost |= lost - untold

    # What is done.

    def _run(self) -> None:
        retry_ms: float | None = None
        while True:
            with self._work:
                self._work.wait_for(
                    lambda: self._pending or self._closed,
                    None if retry_ms is None else retry_ms / 1e3,
                )
                if self._closed:
                    return
                self._pending = False
                session_id = self._session_id
                steps = self._membership.steps() if session_id is not None else Steps()
                self._changes.revoked |= steps.revoke
            try:
                retry_ms = None if self._carry_out(steps, session_id) else RETRY_MS
            except ClosedError:
                return

    def _carry_out(self, steps: Steps, session_id: int | None) -> bool:
        """Release strays, and claim; whether all of it was had."""
        taken: dict[PartitionKey, Offset] = {}
        try:
            if steps.release:
                self._owners.release(steps.release)
            if steps.claim:
                claimed = self._owners.claim(self.consumer, steps.claim)
                taken = self._offsets.take_over(self.consumer, claimed, self._start)
        except ClosedError:
            raise
        except HQueueError as exc:
            logger.warning("a group can't be asked now: %s", exc)
            with self._work:
                self._membership.not_released(steps.release)
        with self._work:
            here = self._session_id == session_id
            # Of what was lost meanwhile the membership knows nothing any more.
            for key in steps.claim & self._membership.held:
                if key in taken and here:
                    self._membership.claimed(key)
                    self._known[key] = self._changes.assigned[key] = taken[key]
                else:
                    self._membership.refused(key)
        return taken.keys() == steps.claim
