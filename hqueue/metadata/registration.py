"""Ephemeral nodes that outlast sessions: made again when one was lost."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoNodeError

from hqueue.errors import ClosedError, HQueueError, StoreUnavailableError
from hqueue.metadata import SessionState
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.zookeeper.requests import delete, get
from hqueue.zookeeper.session import Session, Transaction

__all__ = ["NodeGroup", "PersistentEphemeralNodes"]

logger = logging.getLogger(__name__)

PAUSE_MS = 100


@dataclasses.dataclass(frozen=True, slots=True)
class NodeGroup:
    """Ephemeral nodes that are made together or not at all, beside each other."""

    nodes: Sequence[tuple[str, bytes]]
    """Path and data. The last one's existence says whether the group is there."""

    @property
    def path(self) -> str:
        return self.nodes[-1][0]

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.nodes]


class PersistentEphemeralNodes:
    """Keeps groups of ephemeral nodes in existence. It is a `Registration`.

    Where a group is there already, by another session:

    - if `is_own` says so of its last node's data, its session is that of a process that can't be
      alive, and it is replaced;
    - otherwise it may be dead: it is waited for until its session must be over.

    When the session was lost, a thread makes the groups again, likewise. If it can't, `on_failure`
    is called, and that was it. While ZooKeeper merely can't be reached it goes on trying.

    Args:
        session: the session.
        groups: the nodes. The nodes above them exist.
        is_own: whether a last node with this data can only be an earlier one of ours.
        conflict: the error for a group that stays another's.
        on_missing: the error for a node above that doesn't exist.
        on_failure: called if the nodes can't be made again.

    Raises:
        HQueueError: `conflict` or `missing`, or ZooKeeper's. Nothing is left of the groups.
    """

    def __init__(
        self,
        session: Session,
        groups: Sequence[NodeGroup],
        *,
        is_own: Callable[[bytes], bool],
        on_conflict: Callable[[str, bytes], HQueueError],
        on_missing: Callable[[str], HQueueError],
        on_failure: Callable[[HQueueError], None],
    ) -> None:
        self.failure: HQueueError | None = None
        self._session = session
        self._groups = list(groups)
        self._is_own = is_own
        self._on_conflict = on_conflict
        self._on_missing = on_missing
        self._on_failure = on_failure
        self._made_by: int | None = None
        self._lost = False
        self._closed = False
        self._making = threading.Lock()
        self._work = threading.Condition()
        try:
            self._make()
        except HQueueError:
            self._remove()
            raise
        self._listening = session.on_state(self._on_state, self._end)
        threading.Thread(target=self._run, name="hqueue-registration", daemon=True).start()

    def close(self) -> None:
        """Remove the nodes. Never raises."""
        if self._closed:
            return
        self._end()
        self._listening.close()
        if self._making.acquire(timeout=self._session.settings.request_timeout_ms / 1e3):
            try:
                self._remove()
            finally:
                self._making.release()

    def _end(self) -> None:
        with self._work:
            self._closed = True
            self._work.notify_all()

    def replace(self, groups: Sequence[NodeGroup]) -> None:
        """Keep the same nodes with other data, now and when they are made again."""
        with self._making:
            self._groups = list(groups)
            self._make()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._session.id != self._made_by:
            with self._work:
                self._lost = True
                self._work.notify_all()

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._lost or self._closed)
                if self._closed:
                    return
                self._lost = False
            try:
                with self._making:
                    self._make()
            except StoreUnavailableError as exc:
                logger.warning("a registration could not be made again yet: %s", exc)
                with self._work:
                    self._lost = True
                    self._work.wait_for(lambda: self._closed, PAUSE_MS / 1e3)
            except ClosedError:
                return
            except HQueueError as exc:
                logger.error("a registration could not be made again: %s", exc)
                self.failure = exc
                self._on_failure(exc)
                return

    def _make(self) -> None:
        """Make what isn't there by this session."""
        patience = Deadline(SYSTEM_CLOCK, 1.5 * self._session.timeout_ms + 1_000)
        while not self._closed:
            deadline = self._session.deadline()
            session_id, conflict = deadline.run(partial(self._try_to_make, deadline))
            if conflict is None:
                if session_id is not None and self._session.id == session_id:
                    self._made_by = session_id
                    return
            elif patience.expired:
                raise self._on_conflict(*conflict)
            SYSTEM_CLOCK.sleep_ms(PAUSE_MS)

    def _try_to_make(self, deadline: Deadline) -> tuple[int | None, tuple[str, bytes] | None]:
        """Create what can be created; returns by which session, and a last node that is another's
        for now.
        """
        session_id = self._session.members.primary(deadline).id
        members = self._session.members.allocate([group.paths for group in self._groups], deadline)
        created = self._session.transact(
            [(group.path, _creation(group, ())) for group in self._groups], deadline, members
        )
        there = []
        for group, error in zip(self._groups, created, strict=True):
            if isinstance(error, NoNodeError):
                raise self._on_missing(group.path)
            if error is not None:
                there.append(group)
        conflict = None
        stale: list[tuple[NodeGroup, list[tuple[str, int]]]] = []
        for group, found in zip(there, self._read(there, deadline), strict=True):
            self._session.members.settle(
                (node.path, node.owner) for node in found if node and self._is_of_session(node)
            )
            last = found[-1]
            if last is not None and not self._is_of_session(last) and not self._is_own(last.data):
                conflict = group.path, last.data
            elif not all(
                node is not None and node.data == data and self._is_of_session(node)
                for node, (_, data) in zip(found, group.nodes, strict=True)
            ):
                there_now = [(node.path, node.version) for node in found if node is not None]
                stale.append((group, there_now))
        replaced = self._session.transact(
            [(group.path, _creation(group, old)) for group, old in stale],
            deadline,
            self._session.members.allocate([group.paths for group, _ in stale], deadline),
        )
        for (group, _), error in zip(stale, replaced, strict=True):
            if error is not None:  # It changed just now: look again.
                conflict = conflict or (group.path, b"")
        return session_id, conflict

    def _read(self, groups: Sequence[NodeGroup], deadline: Deadline) -> list[list[_Found | None]]:
        paths = [path for group in groups for path in group.paths]
        members = self._session.members.holders(paths, deadline)
        answers = self._session.run([(path, get(path)) for path in paths], deadline, members)
        found = iter(
            None
            if isinstance(answer, Exception)
            else _Found(path, answer[0], answer[1].version, answer[1].ephemeralOwner)
            for path, answer in zip(paths, answers, strict=True)
        )
        return [[next(found) for _ in group.nodes] for group in groups]

    def _is_of_session(self, node: _Found) -> bool:
        return self._session.members.is_own(node.owner)

    def _remove(self) -> None:
        """Delete those nodes that are this session's."""
        if self._session.state is not SessionState.CONNECTED:
            return
        deadline = Deadline(SYSTEM_CLOCK, self._session.settings.request_timeout_ms)
        try:
            groups = self._read(self._groups, deadline)
            own = [node for found in groups for node in found if node and self._is_of_session(node)]
            own.reverse()
            members = self._session.members.holders([node.path for node in own], deadline)
            answers = self._session.run(
                [(node.path, delete(node.path, node.version)) for node in own], deadline, members
            )
        except HQueueError as exc:
            logger.warning("a registration stays until its session ends: %s", exc)
            return
        stays = {
            node.path
            for node, answer in zip(own, answers, strict=True)
            if isinstance(answer, Exception) and not isinstance(answer, NoNodeError)
        }
        paths = [path for group in self._groups for path in group.paths]
        self._session.members.settle((path, None) for path in paths if path not in stays)


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """A node that is there."""

    path: str
    data: bytes
    version: int
    owner: int


def _creation(group: NodeGroup, stale: Sequence[tuple[str, int]]) -> Transaction:
    """Make a group, in place of nodes of these versions."""

    def operations(transaction: TransactionRequest) -> None:
        for path, version in stale:
            transaction.delete(path, version)
        for path, data in group.nodes:
            transaction.create(path, data, ephemeral=True)

    return operations
