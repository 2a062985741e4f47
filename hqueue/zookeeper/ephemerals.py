"""Registrations as ephemeral nodes, spread over the sessions that make up one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from hqueue.errors import (
    ClosedError,
    HQueueError,
    Outcome,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.metadata.outcomes import answers_of, partly_done, unknown_if_made
from hqueue.metadata.ports import (
    NEW,
    Attempt,
    Change,
    Group,
    Guard,
    GuardedWrite,
    Obstacle,
    Record,
    Version,
)
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.zookeeper.member import Member
from hqueue.zookeeper.proving import node_acl
from hqueue.zookeeper.requests import create, delete, ensure, exists, get
from hqueue.zookeeper.session import (
    PIPELINED_MAX,
    TRANSACTION_BYTES_MAX,
    Session,
    Transaction,
)
from hqueue.zookeeper.waiting import insist
from hqueue.zookeeper.writing import Writing
from hqueue.zookeeper.zookeeper_records import record_of

__all__ = ["ZooKeeperEphemerals", "batches", "guarded_write"]

WRITE_BYTES = 64
"""What a guarded write takes of a transaction besides paths, value and access rights, at most."""

ENTRY_BYTES = 12
"""What an access right takes besides its scheme and ID."""

_Item = TypeVar("_Item")


class ZooKeeperEphemerals(Stepwise):
    """The `Ephemerals` on ZooKeeper. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @stepwise
    def put(
        self, groups: Sequence[Group], *, is_own: Callable[[bytes], bool], parents: bool = False
    ) -> Work[Any, Attempt]:
        """Like `Ephemerals.put`. A group's nodes are created by one transaction."""
        deadline = self._session.deadline()
        put = partial(self._put, groups, is_own, deadline, parents=parents)
        return (yield from insist(deadline, put))

    @stepwise
    def claim(self, values: Mapping[str, bytes]) -> Work[Any, set[str]]:
        """Like `Ephemerals.claim`."""
        deadline = self._session.deadline()
        return (yield from insist(deadline, partial(self._claim, values, deadline)))

    @stepwise
    def create(
        self, values: Mapping[str, bytes], guards: Mapping[str, Guard] | None = None
    ) -> Work[Any, dict[str, Version | None]]:
        """Like `Ephemerals.create`."""
        deadline = self._session.deadline()
        created: dict[str, Version | None] = {}
        for batch in _pipelined(values):
            changes = {path: Change(values[path], NEW) for path in batch}
            try:
                with unknown_if_made(created):
                    writing = Writing(self._session, changes, deadline, guards, ephemeral=True)
                    done = yield from writing.run()
                    created |= done
                    refused = [path for path, version in done.items() if version is None]
                    if refused:
                        # They take up no room.
                        yield from insist(deadline, partial(self._settle, refused, deadline))
            except StoreUnavailableError as exc:
                later = answers_of(exc, values.keys() - changes.keys(), Outcome.NOT_APPLIED)
                raise partly_done(exc, later | answers_of(exc, changes) | created) from exc
        return created

    @stepwise
    def release(self, keys: Iterable[str], *, wait: bool = True) -> Work[Any, None]:
        """Like `Ephemerals.release`."""
        deadline = self._session.deadline() if wait else Deadline(SYSTEM_CLOCK, 0)
        for batch in _pipelined(keys):
            yield from insist(deadline, partial(self._release, batch, deadline))

    @stepwise
    def own(
        self, keys: Iterable[str], on_change: Callable[[str], None]
    ) -> Work[Any, dict[str, Record]]:
        """Like `Ephemerals.own`. A node is watched by the session that it is placed with."""

        def on_event(event: WatchedEvent) -> None:
            if event.type != EventType.NONE:  # Else the connection was cut: the state says so.
                on_change(event.path)

        def look() -> Work[Any, dict[str, Record]]:
            placed = yield from self._placed(wanted, deadline)
            requests = [(path, get(path, on_event)) for path in placed]
            answers = yield from self._session.run.steps(requests, deadline, [*placed.values()])
            found = {
                path: answer
                for path, answer in zip(placed, answers, strict=True)
                if not isinstance(answer, Exception)
            }
            stats = [found[path][1] if path in found else None for path in placed]
            own = yield from self._settle_own(placed, stats)
            return {path: record_of(found[path]) for path in own}

        wanted, deadline = [*keys], self._session.deadline()
        return (yield from insist(deadline, look))

    @stepwise
    def write_where_absent(self, writes: Sequence[GuardedWrite]) -> Work[Any, Obstacle | None]:
        """Like `Ephemerals.write_where_absent`.

        That nothing is registered at a key is part of the transaction: it can be created. As many
        writes go into one as fit its bytes.
        """
        changed = False

        def write(batch: Sequence[GuardedWrite], deadline: Deadline) -> Work[Any, Obstacle | None]:
            nonlocal changed
            try:
                done = yield from self._write(batch, deadline)
            except HQueueError as exc:
                changed |= exc.outcome is Outcome.UNKNOWN
                raise
            changed |= done
            return None if done else (yield from self._obstacle(batch, deadline))

        try:
            for batch in batches(writes, self.write_bytes):
                deadline = self._session.deadline()
                obstacle: Obstacle | None = yield from insist(
                    deadline, partial(write, batch, deadline)
                )
                if obstacle is not None and changed:
                    raise StoreUnavailableError(
                        "changes were interrupted, and some of them may have been made",
                        outcome=Outcome.UNKNOWN,
                        path=obstacle.key,
                    )
                if obstacle is not None:
                    return obstacle
        except (StoreUnavailableError, RequestRefusedError, ClosedError) as exc:
            if changed:
                exc.outcome = Outcome.UNKNOWN
            raise
        return None

    def write_bytes(self, write: GuardedWrite) -> int:
        """What a guarded write takes of a transaction, at most."""
        prefix_bytes = self._session.members.prefix_bytes
        acl = node_acl(self._session.settings)
        return (
            WRITE_BYTES
            + len(write.value)
            + sum(
                prefix_bytes + len(path.encode())
                for path in (write.absent, write.key, write.absent)
            )
            + sum(ENTRY_BYTES + len(f"{entry.scheme}{entry.id}".encode()) for entry in acl)
        )

    def _put(
        self,
        groups: Sequence[Group],
        is_own: Callable[[bytes], bool],
        deadline: Deadline,
        *,
        parents: bool,
    ) -> Work[Any, Attempt]:
        session_id = (yield from self._session.members.primary.steps(deadline)).id
        created = yield from self._create([(group, ()) for group in groups], deadline)
        if parents and any(isinstance(error, NoNodeError) for error in created):
            above = {path.rpartition("/")[0] for group in groups for path in group}
            requests = [(path, ensure(path)) for path in sorted(above)]
            yield from self._session.run.steps(requests, deadline)
            created = yield from self._create([(group, ()) for group in groups], deadline)
        there = []
        for group, error in zip(groups, created, strict=True):
            if isinstance(error, NoNodeError):
                return Attempt(session_id, Obstacle(_last(group), None))
            if error is not None:
                there.append(group)
        obstacle = None
        stale: list[tuple[Group, list[_Found]]] = []
        nodes = yield from self._read(there, deadline)
        for group, found in zip(there, nodes, strict=True):
            own = {node.path: node.value for node in found if self._is_of_session(node)}
            yield from self._session.members.settle(
                (node.path, node.owner) for node in found if node.path in own
            )
            last = found[-1] if found and found[-1].path == _last(group) else None
            if last is not None and last.path not in own and not is_own(last.value):
                obstacle = Obstacle(last.path, last.value)
            elif own != group:
                stale.append((group, found))
        created = yield from self._create(stale, deadline)
        for (group, _), error in zip(stale, created, strict=True):
            if error is not None:  # It changed just now: look again.
                obstacle = obstacle or Obstacle(_last(group), b"")
        return Attempt(session_id, obstacle)

    def _create(
        self, groups: Sequence[tuple[Group, Sequence[_Found]]], deadline: Deadline
    ) -> Work[Any, list[Exception | None]]:
        """Create groups, each in place of these nodes; for each what it was answered with."""
        by = yield from self._session.members.allocate([[*group] for group, _ in groups], deadline)
        creations = [(_last(group), _creation(group, stale)) for group, stale in groups]
        return (yield from self._session.transact(creations, deadline, by))

    def _read(self, groups: Sequence[Group], deadline: Deadline) -> Work[Any, list[list[_Found]]]:
        """Those nodes of each group that are there, in their order."""
        paths = [path for group in groups for path in group]
        members = yield from self._session.members.holders(paths, deadline)
        requests = [(path, get(path)) for path in paths]
        answers = yield from self._session.run.steps(requests, deadline, members)
        found = {
            path: _Found(path, answer[0], answer[1].version, answer[1].ephemeralOwner)
            for path, answer in zip(paths, answers, strict=True)
            if not isinstance(answer, Exception)
        }
        return [[found[path] for path in group if path in found] for group in groups]

    def _is_of_session(self, node: _Found) -> bool:
        return self._session.members.is_own(node.owner)

    def _claim(self, values: Mapping[str, bytes], deadline: Deadline) -> Work[Any, set[str]]:
        """A batch at a time, so that what another has takes up no room in this one's sessions.
        What was claimed before the session began again is another's by now, perhaps: then none of
        it counts.
        """
        claimed: set[str] = set()
        used: set[Member] = set()
        for batch in _pipelined(values):
            members = yield from self._session.members.allocate(
                [[path] for path in batch], deadline
            )
            answers = yield from self._session.run.steps(
                [(path, create(path, values[path], ephemeral=True)) for path in batch],
                deadline,
                members,
            )
            refused = {
                path: member
                for path, member, answer in zip(batch, members, answers, strict=True)
                if isinstance(answer, Exception)
            }
            claimed.update(batch)
            claimed -= refused.keys() - (yield from self._own(refused, deadline)).keys()
            used.update(members)
        self._session.members.check(used)
        return claimed

    def _release(self, paths: Sequence[str], deadline: Deadline) -> Work[Any, None]:
        placed = yield from self._placed(paths, deadline)
        own = yield from self._own(placed, deadline)
        # By the very sessions that said so: what the next one finds there is another's, perhaps,
        # and of the same version.
        yield from self._session.run.steps(
            [(path, delete(path, version)) for path, version in own.items()],
            deadline,
            [placed[path] for path in own],
        )
        yield from self._session.members.settle((path, None) for path in own)

    def _settle(self, paths: Sequence[str], deadline: Deadline) -> Work[Any, None]:
        yield from self._own((yield from self._placed(paths, deadline)), deadline)

    def _placed(self, paths: Sequence[str], deadline: Deadline) -> Work[Any, dict[str, Member]]:
        holders = yield from self._session.members.holders(paths, deadline)
        return dict(zip(paths, holders, strict=True))

    def _own(self, placed: Mapping[str, Member], deadline: Deadline) -> Work[Any, dict[str, int]]:
        """Those of these nodes that are this session's, with their versions. The others count for
        it no more.

        Args:
            placed: the nodes, and the member that each is placed with.
        """
        stats = yield from self._session.run.steps(
            [(path, exists(path)) for path in placed], deadline, [*placed.values()]
        )
        return (yield from self._settle_own(placed, stats))

    def _settle_own(
        self, paths: Iterable[str], stats: Iterable[ZnodeStat | None]
    ) -> Work[Any, dict[str, int]]:
        """Those of these nodes that are this session's, by what was found of each."""
        found = list(zip(paths, stats, strict=True))
        yield from self._session.members.settle(
            (path, None if stat is None else stat.ephemeralOwner) for path, stat in found
        )
        return {
            path: stat.version
            for path, stat in found
            if stat is not None
            and stat.ephemeralOwner
            and self._session.members.is_own(stat.ephemeralOwner)
        }

    def _write(self, writes: Sequence[GuardedWrite], deadline: Deadline) -> Work[Any, bool]:
        """Write all of them, or none. Returns whether they were written."""

        def operations(transaction: TransactionRequest) -> None:
            for write in writes:
                guarded_write(write, transaction)

        (error,) = yield from self._session.transact([(writes[0].key, operations)], deadline)
        return error is None

    def _obstacle(self, writes: Sequence[GuardedWrite], deadline: Deadline) -> Work[Any, Obstacle]:
        """What stands in the way of a transaction."""
        requests = [(write.key, exists(write.key)) for write in writes]
        records = yield from self._session.run.steps(requests, deadline)
        for write, stat in zip(writes, records, strict=True):
            if stat is None:
                return Obstacle(write.key, None)
        requests = [(write.absent, get(write.absent)) for write in writes]
        guards = yield from self._session.run.steps(requests, deadline)
        for write, answer in zip(writes, guards, strict=True):
            if not isinstance(answer, Exception):
                return Obstacle(write.absent, answer[0])
        raise StoreUnavailableError(
            "other programs keep creating and deleting registrations: try again",
            outcome=Outcome.NOT_APPLIED,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """A node that is there."""

    path: str
    value: bytes
    version: int
    owner: int


def _last(group: Group) -> str:
    return next(reversed([*group]))


def _creation(group: Group, stale: Sequence[_Found]) -> Transaction:
    """Make a group, in place of these nodes."""

    def operations(transaction: TransactionRequest) -> None:
        for node in stale:
            transaction.delete(node.path, node.version)
        for path, value in group.items():
            transaction.create(path, value, ephemeral=True)

    return operations


def guarded_write(write: GuardedWrite, transaction: TransactionRequest) -> None:
    """Add a guarded write to a transaction."""
    transaction.create(write.absent, b"", ephemeral=True)
    transaction.set_data(write.key, write.value)
    transaction.delete(write.absent)


def batches(items: Iterable[_Item], size: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """Cut into as few batches as `TRANSACTION_BYTES_MAX` allows. Checkpoints of the longest
    names that there are take 2 KB each, so 250 go together below any root of up to 200 bytes.
    """
    batch: list[_Item] = []
    size_bytes = 0
    for item in items:
        if batch and size_bytes + size(item) > TRANSACTION_BYTES_MAX:
            yield batch
            batch, size_bytes = [], 0
        batch.append(item)
        size_bytes += size(item)
    if batch:
        yield batch


def _pipelined(paths: Iterable[str]) -> Iterator[list[str]]:
    ordered = [*paths]
    for first in range(0, len(ordered), PIPELINED_MAX):
        yield ordered[first : first + PIPELINED_MAX]
