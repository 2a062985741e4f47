"""Ephemeral nodes that outlast sessions: made anew when one was lost."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoNodeError

from hqueue.clock import SYSTEM_CLOCK, Deadline
from hqueue.coordination import SessionState
from hqueue.errors import ClosedError, HQueueError, StoreUnavailableError
from hqueue.zookeeper.requests import delete, get
from hqueue.zookeeper.session import Session, Transaction

__all__ = ["LastingNodes", "NodeGroup"]

logger = logging.getLogger(__name__)

PAUSE_MS = 100


@dataclasses.dataclass(frozen=True, slots=True)
class NodeGroup:
    """Ephemeral nodes that are made together or not at all, beside each other."""

    nodes: Sequence[tuple[str, bytes]]
    """Path and data. The last one's existence says whether the group is there."""

    @property
    def place(self) -> str:
        return self.nodes[-1][0]


class LastingNodes:
    """Keeps groups of ephemeral nodes in existence. It is a `Registration`.

    Where a group is there already, by another session:

    - if `ours` says so of its last node's data, its session is that of somebody who can't be
      alive, and it is replaced;
    - otherwise it may be dead: it is waited for until its session must be over.

    When the session was lost, a thread makes the groups anew, likewise. If it can't, `on_failure`
    is told, and that was it. While ZooKeeper merely can't be reached it goes on trying.

    Args:
        session: the session.
        groups: the nodes. The nodes above them exist.
        ours: whether a last node with this data can only be an earlier one of ours.
        taken: the error for a group that stays another's.
        missing: the error for a node above that doesn't exist.
        on_failure: told if the nodes can't be made anew.

    Raises:
        HQueueError: `taken` or `missing`, or ZooKeeper's. Nothing is left of the groups.
    """

    def __init__(
        self,
        session: Session,
        groups: Sequence[NodeGroup],
        *,
        ours: Callable[[bytes], bool],
        taken: Callable[[str, bytes], HQueueError],
        missing: Callable[[str], HQueueError],
        on_failure: Callable[[HQueueError], None],
    ) -> None:
        self.failure: HQueueError | None = None
        self._session = session
        self._groups = list(groups)
        self._ours = ours
        self._taken = taken
        self._missing = missing
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
        """Keep the same nodes with other data, now and when they are made anew."""
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
                logger.warning("a registration could not be made anew yet: %s", exc)
                with self._work:
                    self._lost = True
                    self._work.wait_for(lambda: self._closed, PAUSE_MS / 1e3)
            except ClosedError:
                return
            except HQueueError as exc:
                logger.error("a registration could not be made anew: %s", exc)
                self.failure = exc
                self._on_failure(exc)
                return

    def _make(self) -> None:
        """Make what isn't there by this session."""
        patience = Deadline(SYSTEM_CLOCK, 1.5 * self._session.timeout_ms + 1_000)
        while not self._closed:
            deadline = self._session.deadline()
            session_id, taken = deadline.run(partial(self._try_to_make, deadline))
            if taken is None:
                if self._session.id == session_id:
                    self._made_by = session_id
                    return
            elif patience.expired:
                raise self._taken(*taken)
            SYSTEM_CLOCK.sleep_ms(PAUSE_MS)

    def _try_to_make(self, deadline: Deadline) -> tuple[int, tuple[str, bytes] | None]:
        """Create what can be created; returns by which session, and a last node that is another's
        for now.
        """
        session_id = self._session.connect(deadline)
        created = self._session.transact(
            [(group.place, _creation(group, ())) for group in self._groups], deadline
        )
        there = []
        for group, error in zip(self._groups, created, strict=True):
            if isinstance(error, NoNodeError):
                raise self._missing(group.place)
            if error is not None:
                there.append(group)
        taken = None
        stale: list[tuple[NodeGroup, list[tuple[str, int]]]] = []
        for group, found in zip(there, self._read(there, deadline), strict=True):
            last = found[-1]
            if last is not None and last.owner != session_id and not self._ours(last.data):
                taken = group.place, last.data
            elif not all(
                node is not None and node.data == data and node.owner == session_id
                for node, (_, data) in zip(found, group.nodes, strict=True)
            ):
                there_now = [(node.path, node.version) for node in found if node is not None]
                stale.append((group, there_now))
        replaced = self._session.transact(
            [(group.place, _creation(group, old)) for group, old in stale], deadline
        )
        for (group, _), error in zip(stale, replaced, strict=True):
            if error is not None:  # It changed just now: look again.
                taken = taken or (group.place, b"")
        return session_id, taken

    def _read(self, groups: Sequence[NodeGroup], deadline: Deadline) -> list[list[_Found | None]]:
        paths = [path for group in groups for path, _ in group.nodes]
        answers = self._session.run([(path, get(path)) for path in paths], deadline)
        found = iter(
            None
            if isinstance(answer, Exception)
            else _Found(path, answer[0], answer[1].version, answer[1].ephemeralOwner)
            for path, answer in zip(paths, answers, strict=True)
        )
        return [[next(found) for _ in group.nodes] for group in groups]

    def _remove(self) -> None:
        """Delete those nodes that are this session's."""
        session_id = self._session.id
        if session_id is None:
            return
        deadline = Deadline(SYSTEM_CLOCK, self._session.settings.request_timeout_ms)
        try:
            groups = self._read(self._groups, deadline)
            own = [node for found in groups for node in found if node and node.owner == session_id]
            self._session.run(
                [(node.path, delete(node.path, node.version)) for node in reversed(own)], deadline
            )
        except HQueueError as exc:
            logger.warning("a registration stays until its session ends: %s", exc)


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
