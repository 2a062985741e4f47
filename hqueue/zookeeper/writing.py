"""Changes of nodes, looked up where an answer was lost."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from hqueue.errors import (
    ClosedError,
    HQueueError,
    Outcome,
    RequestRefusedError,
    StoreUnavailableError,
)
from hqueue.metadata.outcomes import answers_of, is_made, partly_done
from hqueue.metadata.ports import ANY, NEW, Change, Guard, Version
from hqueue.runtime.clock import Deadline
from hqueue.runtime.steps import Work
from hqueue.zookeeper.member import Member
from hqueue.zookeeper.requests import create, delete, ensure, exists, get, put, sync
from hqueue.zookeeper.session import TRANSACTION_BYTES_MAX, Request, Session, verdict
from hqueue.zookeeper.waiting import insist

__all__ = ["FIRST_VERSION", "Writing", "expected"]

CHANGE_BYTES = 256
"""What a change takes of a transaction besides its path and value, about."""

TOGETHER_MAX = 64
"""Changes in a transaction: one that is refused has the others of it sent again."""

ANY_VERSION = -1
FIRST_VERSION = 0


class Writing:
    """The changes of one call. Used by one thread.

    While an answer is missing nothing is sent again before the node was looked at. ZooKeeper does
    the requests of a session in their order, so what was sent before a `sync` was done by then or
    never will be; and each change has a number (zxid), greater than that of all changes before. So
    a node says

    - that it was changed by this call: by its value and its version;
    - that it was not: if it was created before the request, and has a version from before, or the
      next one with another's value; if it was changed last before the request; if it is not there,
      and nothing was created or deleted beside it since;
    - nothing else. What can't be known is an error, and never repeated.

    Changes are sent as few transactions: as most are done, one request does many. Of a transaction
    that is refused each change is sent again by itself.

    Args:
        session: with ZooKeeper.
        changes: the changes to make.
        deadline: the bound on all of it.
        guards: what else must have which version, by the keys of changes. Where an ephemeral node
            is created its guard is written, too.
        ephemeral: whether nodes that are created end with this session.
        removal: whether the nodes are deleted: what is done has the version that it had.
    """

    def __init__(
        self,
        session: Session,
        changes: Mapping[str, Change],
        deadline: Deadline,
        guards: Mapping[str, Guard] | None = None,
        *,
        ephemeral: bool = False,
        removal: bool = False,
    ) -> None:
        self._session = session
        self._changes = changes
        self._deadline = deadline
        self._guards = guards or {}
        self._ephemeral = ephemeral
        self._removal = removal
        self.with_children: set[str] = set()
        """Those that can't be deleted for what is below them."""
        self._left = dict(changes)
        self._done: dict[str, Version | None] = {}
        self._lost: list[str] = []
        self._in_doubt = False
        self._before = 0
        """No request whose answer is missing was done at this zxid or before."""

    def run(self) -> Work[Any, dict[str, Version | None]]:
        """Like `Records.write`."""
        try:
            yield from insist(self._deadline, self._attempt)
        except StoreUnavailableError as exc:
            outcome = Outcome.UNKNOWN if self._in_doubt else Outcome.NOT_APPLIED
            left = answers_of(exc, self._left, outcome)
            raise partly_done(exc, {**self._done, **self._lost_answers(), **left}) from exc
        except (RequestRefusedError, ClosedError) as exc:
            made = self._in_doubt or self._lost or any(map(is_made, self._done.values()))
            # Both ways: the doubt of an earlier try may have been cleared.
            exc.outcome = Outcome.UNKNOWN if made else Outcome.NOT_APPLIED
            raise
        if self._lost:
            lost = self._lost_answers()
            raise partly_done(lost[self._lost[0]], {**self._done, **lost})
        return {key: self._done[key] for key in self._changes}

    def _lost_answers(self) -> dict[str, StoreUnavailableError]:
        return {
            key: StoreUnavailableError(
                "the answer was lost, and other programs changed the record since: read it again",
                outcome=Outcome.UNKNOWN,
                path=key,
            )
            for key in self._lost
        }

    def _attempt(self) -> Work[Any, None]:
        if self._in_doubt:
            yield from self._look_up()
        if not self._left:
            return
        primary = yield from self._session.members.primary.steps(self._deadline)
        self._before = primary.client.last_zxid
        missing = yield from self._send(self._left)
        if missing:  # As a rule one level is, and comes with them.
            missing = yield from self._send(missing, above=_above(missing))
        if missing:
            above = _above(missing)
            yield from self._ask([(path, ensure(path)) for path in above])
            if (yield from self._send(missing)):
                raise StoreUnavailableError(
                    "other programs keep deleting the nodes above these records: try again",
                    outcome=Outcome.NOT_APPLIED,
                )

    def _send(self, keys: Collection[str], above: Sequence[str] = ()) -> Work[Any, list[str]]:
        """Send the changes of these, after the creation of empty nodes; returns those with
        nothing above them.
        """
        alone = list(keys)
        if not above:
            alone = yield from self._send_together(alone)
        by = yield from self._by(alone)
        if by is not None and above:
            primary = yield from self._session.members.primary.steps(self._deadline)
            by = [primary] * len(above) + by
        requests = [(path, create(path, b"", parents=False)) for path in above]
        requests += [(key, self._request(key)) for key in alone]
        answers = (yield from self._run(requests, by))[len(above) :]
        missing = []
        for key, each in zip(alone, answers, strict=True):
            answer = each
            if isinstance(each, list):  # Of a transaction: the change, then its guard.
                refusal = verdict(key, each)
                answer = each[0] if refusal is None else refusal
            if isinstance(answer, NoNodeError) and self._left[key].version == NEW:
                missing.append(key)
                continue
            self._take(key, answer)
        return missing

    def _send_together(self, keys: Sequence[str]) -> Work[Any, list[str]]:
        """Send changes as transactions; returns those of the ones that were refused."""
        by: Sequence[Member | None] = (yield from self._by(keys)) or [None] * len(keys)
        batches = list(self._batches(zip(keys, by, strict=True)))
        requests = [(of[0], self._transaction(of)) for _, of in batches]
        members = [member for member, _ in batches if member is not None]
        refused = []
        answers = yield from self._run(requests, members or None)
        for (_, of), results in zip(batches, answers, strict=True):
            if any(isinstance(result, Exception) for result in results):
                refused += of
                continue
            own = iter(results)
            for key in of:
                self._take(key, next(own))
                if key in self._guards:
                    next(own)
        return refused

    def _batches(
        self, placed: Iterable[tuple[str, Member | None]]
    ) -> Iterator[tuple[Member | None, list[str]]]:
        """What goes into one transaction, of each member."""
        open_of: dict[Member | None, list[str]] = {}
        size_of: dict[Member | None, int] = {}
        for key, member in placed:
            size = CHANGE_BYTES + len(self._left[key].value) + len(key.encode())
            if key in self._guards:
                size += CHANGE_BYTES + len(self._guards[key].key.encode())
            batch = open_of.setdefault(member, [])
            if batch and (
                size_of[member] + size > TRANSACTION_BYTES_MAX or len(batch) == TOGETHER_MAX
            ):
                yield member, batch
                batch = open_of[member] = []
                size_of[member] = 0
            batch.append(key)
            size_of[member] = size_of.get(member, 0) + size
        yield from open_of.items()

    def _transaction(self, keys: Sequence[str]) -> Request:
        changes = [(key, self._left[key]) for key in keys]

        def send(client: KazooClient) -> Any:
            transaction = client.transaction()
            for key, change in changes:
                if self._removal:
                    transaction.delete(key, expected(change.version))
                elif change.version == NEW:
                    transaction.create(key, change.value, ephemeral=self._ephemeral)
                else:
                    transaction.set_data(key, change.value, expected(change.version))
                guard = self._guards.get(key)
                if guard is not None and self._ephemeral:
                    transaction.set_data(guard.key, b"", guard.version)
                elif guard is not None:
                    transaction.check(guard.key, guard.version)
            return transaction.commit_async()

        return send

    def _ask(
        self, requests: Sequence[tuple[str, Request]], by: list[Member] | None = None
    ) -> Work[Any, list[Any]]:
        return (yield from self._session.run.steps(requests, self._deadline, by))

    def _run(
        self, requests: Sequence[tuple[str, Request]], by: list[Member] | None
    ) -> Work[Any, list[Any]]:
        try:
            return (yield from self._ask(requests, by))
        except HQueueError as exc:
            self._in_doubt |= exc.outcome is Outcome.UNKNOWN
            raise

    def _take(self, key: str, answer: Any) -> None:
        if isinstance(answer, NotEmptyError):
            self.with_children.add(key)
        self._done[key] = self._left[key].version if answer is True else _version(answer)
        del self._left[key]

    def _by(self, keys: Collection[str]) -> Work[Any, list[Member] | None]:
        """The members that nodes are placed with; None for the primary."""
        if not self._ephemeral:
            return None
        return (yield from self._session.members.allocate([[key] for key in keys], self._deadline))

    def _request(self, key: str) -> Request:
        change = self._left[key]
        if key in self._guards:
            return self._transaction([key])
        if self._removal:
            return delete(key, expected(change.version))
        if change.version == NEW:
            return create(key, change.value, ephemeral=self._ephemeral, parents=False)
        return put(key, change.value, expected(change.version))

    def _look_up(self) -> Work[Any, None]:
        """Take what was done, or refused, from what is left to do."""
        by = yield from self._by(self._left)
        asked = None if by is None else list(dict.fromkeys(by))
        yield from self._ask([("/", sync("/"))] * len(asked or [0]), asked)
        answers = yield from self._ask([(key, get(key)) for key in self._left], by)
        there = dict(zip(self._left, answers, strict=True))
        quiet = yield from self._quiet(
            [key for key, answer in there.items() if isinstance(answer, Exception)]
        )
        self._in_doubt = False
        for key, answer in there.items():
            version = self._left[key].version
            if isinstance(answer, Exception):
                found: Version | _Lost | None = None if key in quiet else _Lost.LOST
                repeat = key in quiet and version == NEW
            else:
                found = self._found(self._left[key], *answer)
                repeat = answer[1].version == version or (found is None and version == ANY)
            if found is _Lost.LOST:
                self._lost.append(key)
            elif found is not None or not repeat:
                self._done[key] = found
            if key in self._done or found is _Lost.LOST:
                del self._left[key]

    def _found(self, change: Change, value: bytes, stat: Any) -> Version | _Lost | None:
        """The version that a node has by a change; None if it was not changed by it."""
        if self._removal:
            return None if stat.czxid <= self._before else _Lost.LOST
        after = FIRST_VERSION if change.version == NEW else change.version + 1
        if value == change.value and (change.version == ANY or stat.version == after):
            if self._ephemeral and not self._session.members.is_own(stat.ephemeralOwner):
                return _Lost.LOST  # It goes with a session that is over.
            return Version(stat.version)
        unchanged = stat.mzxid <= self._before
        refused = change.version == NEW or (change.version != ANY and stat.version <= after)
        return None if stat.czxid <= self._before and (unchanged or refused) else _Lost.LOST

    def _quiet(self, keys: Collection[str]) -> Work[Any, set[str]]:
        """Those of these nodes, all absent, that were not created since."""
        quiet: set[str] = set()
        above = {key: key.rpartition("/")[0] or "/" for key in keys}
        while above:
            paths = sorted(set(above.values()))
            answers = yield from self._ask([(path, exists(path)) for path in paths])
            stats = dict(zip(paths, answers, strict=True))
            quiet |= {
                key for key, path in above.items()
                if stats[path] is not None and stats[path].pzxid <= self._before
            }  # fmt: skip
            above = {
                key: path.rpartition("/")[0] or "/"
                for key, path in above.items()
                if stats[path] is None and path != "/"
            }
        return quiet


def _above(keys: Collection[str]) -> Sequence[str]:
    return sorted({key.rpartition("/")[0] for key in keys}.difference(keys))


class _Lost(enum.Enum):
    """It can't be known what became of a change."""

    LOST = enum.auto()


def expected(version: Version) -> int:
    """A version, as ZooKeeper compares it."""
    return ANY_VERSION if version == ANY else version


def _version(answer: Any) -> Version | None:
    """The version of a node that was written, by what its request answers."""
    if isinstance(answer, (BadVersionError, NoNodeError, NodeExistsError, NotEmptyError)):
        return None
    return Version(FIRST_VERSION if isinstance(answer, str) else answer.version)
