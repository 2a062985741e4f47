"""Registrations as ephemeral nodes, spread over the sessions that make up one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

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
from hqueue.zookeeper.member import Member
from hqueue.zookeeper.records import record_of
from hqueue.zookeeper.requests import create, delete, ensure, exists, get
from hqueue.zookeeper.session import (
    PIPELINED_MAX,
    TRANSACTION_BYTES_MAX,
    Session,
    Transaction,
)
from hqueue.zookeeper.writing import Writing

__all__ = ["ZooKeeperEphemerals", "guarded_write", "portions"]

WRITE_BYTES = 64
"""What a guarded write takes of a transaction besides paths, value and access rights, at most."""

RULE_BYTES = 12
"""What an access right takes besides its scheme and ID."""

_Item = TypeVar("_Item")


class ZooKeeperEphemerals:
    """The `Ephemerals` on ZooKeeper. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(
        self, groups: Sequence[Group], *, is_own: Callable[[bytes], bool], parents: bool = False
    ) -> Attempt:
        """As `Ephemerals.put`. A group's nodes are created by one transaction."""
        deadline = self._session.deadline()
        return deadline.run(lambda: self._put(groups, is_own, deadline, parents=parents))

    def claim(self, values: Mapping[str, bytes]) -> set[str]:
        """As `Ephemerals.claim`."""
        deadline = self._session.deadline()
        return deadline.run(partial(self._claim, values, deadline))

    def create(
        self, values: Mapping[str, bytes], guards: Mapping[str, Guard] | None = None
    ) -> dict[str, Version | None]:
        """As `Ephemerals.create`."""
        deadline = self._session.deadline()
        created: dict[str, Version | None] = {}
        for portion in _pipelined(values):
            changes = {path: Change(values[path], NEW) for path in portion}
            try:
                with unknown_if_made(created):
                    done = Writing(self._session, changes, deadline, guards, ephemeral=True).run()
                    created |= done
                    refused = [path for path, version in done.items() if version is None]
                    if refused:
                        # They take up no room.
                        deadline.run(partial(self._settle, refused, deadline))
            except StoreUnavailableError as exc:
                later = answers_of(exc, values.keys() - changes.keys(), Outcome.NOT_APPLIED)
                raise partly_done(exc, later | answers_of(exc, changes) | created) from exc
        return created

    def release(self, keys: Iterable[str], *, wait: bool = True) -> None:
        """As `Ephemerals.release`."""
        deadline = self._session.deadline() if wait else Deadline(SYSTEM_CLOCK, 0)
        for portion in _pipelined(keys):
            deadline.run(partial(self._release, portion, deadline))

    def own(self, keys: Iterable[str], on_change: Callable[[str], None]) -> dict[str, Record]:
        """As `Ephemerals.own`. A node is watched by the session that it is placed with."""

        def on_event(event: WatchedEvent) -> None:
            if event.type != EventType.NONE:  # Else the connection was cut: the state says so.
                on_change(event.path)

        def look() -> dict[str, Record]:
            placed = self._placed(wanted, deadline)
            answers = self._session.run(
                [(path, get(path, on_event)) for path in placed], deadline, [*placed.values()]
            )
            found = {
                path: answer
                for path, answer in zip(placed, answers, strict=True)
                if not isinstance(answer, Exception)
            }
            self._session.members.settle(
                (path, found[path][1].ephemeralOwner if path in found else None) for path in placed
            )
            return {
                path: record_of(answer)
                for path, answer in found.items()
                if answer[1].ephemeralOwner
                and self._session.members.is_own(answer[1].ephemeralOwner)
            }

        wanted, deadline = [*keys], self._session.deadline()
        return deadline.run(look)

    def write_where_absent(self, writes: Sequence[GuardedWrite]) -> Obstacle | None:
        """As `Ephemerals.write_where_absent`.

        That nothing is registered at a key is part of the transaction: it can be created. As many
        writes go into one as fit its bytes.
        """
        changed = False

        def write(portion: Sequence[GuardedWrite], deadline: Deadline) -> Obstacle | None:
            nonlocal changed
            try:
                done = self._write(portion, deadline)
            except HQueueError as exc:
                changed |= exc.outcome is Outcome.UNKNOWN
                raise
            changed |= done
            return None if done else self._obstacle(portion, deadline)

        try:
            for portion in portions(writes, self.write_bytes):
                deadline = self._session.deadline()
                obstacle = deadline.run(partial(write, portion, deadline))
                if obstacle is not None and changed:
                    raise StoreUnavailableError(
                        "something came in the way of changes of which some may have been made",
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
        rules = self._session.settings.zookeeper_acl
        return (
            WRITE_BYTES
            + len(write.value)
            + sum(
                prefix_bytes + len(path.encode())
                for path in (write.absent, write.key, write.absent)
            )
            + sum(RULE_BYTES + len(f"{rule.scheme}{rule.id}".encode()) for rule in rules)
        )

    def _put(
        self,
        groups: Sequence[Group],
        is_own: Callable[[bytes], bool],
        deadline: Deadline,
        *,
        parents: bool,
    ) -> Attempt:
        session_id = self._session.members.primary(deadline).id
        created = self._create([(group, ()) for group in groups], deadline)
        if parents and any(isinstance(error, NoNodeError) for error in created):
            above = {path.rpartition("/")[0] for group in groups for path in group}
            self._session.run([(path, ensure(path)) for path in sorted(above)], deadline)
            created = self._create([(group, ()) for group in groups], deadline)
        there = []
        for group, error in zip(groups, created, strict=True):
            if isinstance(error, NoNodeError):
                return Attempt(session_id, Obstacle(_last(group), None))
            if error is not None:
                there.append(group)
        obstacle = None
        stale: list[tuple[Group, list[_Found]]] = []
        for group, found in zip(there, self._read(there, deadline), strict=True):
            own = {node.path: node.value for node in found if self._is_of_session(node)}
            self._session.members.settle(
                (node.path, node.owner) for node in found if node.path in own
            )
            last = found[-1] if found and found[-1].path == _last(group) else None
            if last is not None and last.path not in own and not is_own(last.value):
                obstacle = Obstacle(last.path, last.value)
            elif own != group:
                stale.append((group, found))
        for (group, _), error in zip(stale, self._create(stale, deadline), strict=True):
            if error is not None:  # It changed just now: look again.
                obstacle = obstacle or Obstacle(_last(group), b"")
        return Attempt(session_id, obstacle)

    def _create(
        self, groups: Sequence[tuple[Group, Sequence[_Found]]], deadline: Deadline
    ) -> list[Exception | None]:
        """Create groups, each in place of these nodes; for each what it was answered with."""
        return self._session.transact(
            [(_last(group), _creation(group, stale)) for group, stale in groups],
            deadline,
            self._session.members.allocate([[*group] for group, _ in groups], deadline),
        )

    def _read(self, groups: Sequence[Group], deadline: Deadline) -> list[list[_Found]]:
        """Those nodes of each group that are there, in their order."""
        paths = [path for group in groups for path in group]
        members = self._session.members.holders(paths, deadline)
        answers = self._session.run([(path, get(path)) for path in paths], deadline, members)
        found = {
            path: _Found(path, answer[0], answer[1].version, answer[1].ephemeralOwner)
            for path, answer in zip(paths, answers, strict=True)
            if not isinstance(answer, Exception)
        }
        return [[found[path] for path in group if path in found] for group in groups]

    def _is_of_session(self, node: _Found) -> bool:
        return self._session.members.is_own(node.owner)

    def _claim(self, values: Mapping[str, bytes], deadline: Deadline) -> set[str]:
        """A portion at a time, so that what another has takes up no room in this one's sessions.
        What was claimed before the session began again is another's by now, perhaps: then none of
        it counts.
        """
        claimed: set[str] = set()
        used: set[Member] = set()
        for portion in _pipelined(values):
            members = self._session.members.allocate([[path] for path in portion], deadline)
            answers = self._session.run(
                [(path, create(path, values[path], ephemeral=True)) for path in portion],
                deadline,
                members,
            )
            refused = {
                path: member
                for path, member, answer in zip(portion, members, answers, strict=True)
                if isinstance(answer, Exception)
            }
            claimed.update(portion)
            claimed -= refused.keys() - self._own(refused, deadline).keys()
            used.update(members)
        self._session.members.check(used)
        return claimed

    def _release(self, paths: Sequence[str], deadline: Deadline) -> None:
        placed = self._placed(paths, deadline)
        own = self._own(placed, deadline)
        # By the very sessions that said so: what the next one finds there is another's, perhaps,
        # and of the same version.
        self._session.run(
            [(path, delete(path, version)) for path, version in own.items()],
            deadline,
            [placed[path] for path in own],
        )
        self._session.members.settle((path, None) for path in own)

    def _settle(self, paths: Sequence[str], deadline: Deadline) -> None:
        self._own(self._placed(paths, deadline), deadline)

    def _placed(self, paths: Sequence[str], deadline: Deadline) -> dict[str, Member]:
        return dict(zip(paths, self._session.members.holders(paths, deadline), strict=True))

    def _own(self, placed: Mapping[str, Member], deadline: Deadline) -> dict[str, int]:
        """Those of these nodes that are this session's, with their versions. The others count for
        it no more.

        Args:
            placed: the nodes, and the member that each is placed with.
        """
        stats = self._session.run(
            [(path, exists(path)) for path in placed], deadline, [*placed.values()]
        )
        found = list(zip(placed, stats, strict=True))
        self._session.members.settle(
            (path, None if stat is None else stat.ephemeralOwner) for path, stat in found
        )
        return {
            path: stat.version
            for path, stat in found
            if stat is not None
            and stat.ephemeralOwner
            and self._session.members.is_own(stat.ephemeralOwner)
        }

    def _write(self, writes: Sequence[GuardedWrite], deadline: Deadline) -> bool:
        """Write all of them, or none; whether it was done."""

        def operations(transaction: TransactionRequest) -> None:
            for write in writes:
                guarded_write(write, transaction)

        (error,) = self._session.transact([(writes[0].key, operations)], deadline)
        return error is None

    def _obstacle(self, writes: Sequence[GuardedWrite], deadline: Deadline) -> Obstacle:
        """What stands in the way of a transaction."""
        records = self._session.run([(w.key, exists(w.key)) for w in writes], deadline)
        for write, stat in zip(writes, records, strict=True):
            if stat is None:
                return Obstacle(write.key, None)
        guards = self._session.run([(w.absent, get(w.absent)) for w in writes], deadline)
        for write, answer in zip(writes, guards, strict=True):
            if not isinstance(answer, Exception):
                return Obstacle(write.absent, answer[0])
        raise StoreUnavailableError("registrations come and go just now")


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


def portions(items: Iterable[_Item], size: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """Cut into as few portions as `TRANSACTION_BYTES_MAX` allows. Checkpoints of the longest
    names that there are take 2 KB each, so 250 go together below any root of up to 200 bytes.
    """
    portion: list[_Item] = []
    size_bytes = 0
    for item in items:
        if portion and size_bytes + size(item) > TRANSACTION_BYTES_MAX:
            yield portion
            portion, size_bytes = [], 0
        portion.append(item)
        size_bytes += size(item)
    if portion:
        yield portion


def _pipelined(paths: Iterable[str]) -> Iterator[list[str]]:
    ordered = [*paths]
    for first in range(0, len(ordered), PIPELINED_MAX):
        yield ordered[first : first + PIPELINED_MAX]
