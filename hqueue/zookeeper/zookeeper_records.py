"""Versioned records as nodes.

ZooKeeper does not bound its answers, and kazoo reads them whatever their length: unlike a
transaction, a large listing harms nobody but who asks. The largest one of a single node is that of
a queue's partitions: 32,767 names of 9 bytes, which is 300 KB. Memory is bounded by what is found
and by `PIPELINED_MAX` answers under way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import BadVersionError, NoNodeError, NotEmptyError

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.metadata.outcomes import PartlyDoneError, partly_done
from hqueue.metadata.ports import ANY, Change, Guard, Record, Version
from hqueue.runtime.clock import Deadline
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.zookeeper.requests import children, create, delete, get, sync
from hqueue.zookeeper.session import Session
from hqueue.zookeeper.waiting import insist
from hqueue.zookeeper.writing import Writing, expected

__all__ = ["ZooKeeperRecords", "record_of"]


class ZooKeeperRecords(Stepwise):
    """The `Records` on ZooKeeper: a version is the node's. Thread-safe.

    Nodes that lead to others are records as well, and empty.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @stepwise
    def keys(self, prefix: str, depth: int) -> Work[Any, Sequence[str]]:
        """Like `Records.keys`: a level of the tree in one go."""
        deadline = self._session.deadline()
        return (yield from insist(deadline, partial(self._keys, prefix, depth, deadline)))

    @stepwise
    def list(self, prefix: str, depth: int) -> Work[Any, dict[str, Record]]:
        """Like `Records.list`."""
        deadline = self._session.deadline()

        def read() -> Work[Any, dict[str, Record]]:
            keys = yield from self._keys(prefix, depth, deadline)
            return (yield from self._read(keys, deadline))

        return (yield from insist(deadline, read))

    @stepwise
    def read(self, keys: Iterable[str]) -> Work[Any, dict[str, Record]]:
        """Like `Records.read`."""
        wanted = [*keys]
        deadline = self._session.deadline()
        return (yield from insist(deadline, partial(self._read, wanted, deadline)))

    @stepwise
    def create(self, values: Mapping[str, bytes]) -> Work[Any, dict[str, Record]]:
        """Like `Records.create`."""
        requests = [(key, create(key, value)) for key, value in values.items()]
        deadline = self._session.deadline()

        def create_missing() -> Work[Any, dict[str, Record]]:
            answers = yield from self._session.run.steps(requests, deadline)
            found = yield from self._read(values, deadline)
            gone = any(isinstance(answer, NoNodeError) for answer in answers)
            if gone or len(found) < len(values):
                raise StoreUnavailableError(
                    "other programs keep deleting the nodes above these records: try again",
                    outcome=Outcome.NOT_APPLIED,
                )
            return found

        return (yield from insist(deadline, create_missing))

    @stepwise
    def write(
        self, changes: Mapping[str, Change], guards: Mapping[str, Guard] | None = None
    ) -> Work[Any, dict[str, Version | None]]:
        """Like `Records.write`."""
        writing = Writing(self._session, changes, self._session.deadline(), guards)
        return (yield from writing.run())

    @stepwise
    def remove(
        self, versions: Mapping[str, Version], guards: Mapping[str, Guard] | None = None
    ) -> Work[Any, dict[str, bool | None]]:
        """Like `Records.remove`."""
        changes = {key: Change(b"", version) for key, version in versions.items()}
        removal = Writing(self._session, changes, self._session.deadline(), guards, removal=True)

        def said(key: str, answer: object) -> Any:
            if isinstance(answer, StoreUnavailableError):
                return answer
            return None if key in removal.with_children else answer is not None

        try:
            done = yield from removal.run()
        except PartlyDoneError as exc:
            answers = {key: said(key, answer) for key, answer in exc.answers.items()}
            raise partly_done(exc, answers) from exc
        return {key: said(key, answer) for key, answer in done.items()}

    @stepwise
    def delete(
        self, versions: Mapping[str, Version], *, levels_above: int = 0
    ) -> Work[Any, Collection[str]]:
        """Like `Records.delete`. A node with a child can't be deleted. When an answer was lost, and
        the node was changed since, it is another one, and stays.
        """
        deadline = self._session.deadline()
        left, changed, in_doubt, before = dict(versions), set[str](), False, 0

        def remove() -> Work[Any, Collection[str]]:
            nonlocal in_doubt, before
            if in_doubt:
                yield from self._session.one.steps("/", sync("/"), deadline)
                for key, record in (yield from self._read(left, deadline)).items():
                    if versions[key] != ANY and record.changed > before:
                        changed.add(key)
                        del left[key]
            in_doubt = False
            primary = yield from self._session.members.primary.steps(deadline)
            before = primary.client.last_zxid
            requests = [(key, delete(key, expected(version))) for key, version in left.items()]
            try:
                answers = yield from self._session.run.steps(requests, deadline)
            except StoreUnavailableError:
                in_doubt = True
                raise
            stay = changed | {
                key
                for key, answer in zip(left, answers, strict=True)
                if isinstance(answer, (NotEmptyError, BadVersionError))
            }
            above = versions.keys() - stay
            for _ in range(levels_above):
                above = {key.rpartition("/")[0] for key in above}
                requests = [(key, delete(key)) for key in sorted(above)]
                yield from self._session.run.steps(requests, deadline)
            return stay

        return (yield from insist(deadline, remove))

    def _keys(self, prefix: str, depth: int, deadline: Deadline) -> Work[Any, Sequence[str]]:
        keys = [prefix]
        for _ in range(depth):
            requests = [(key, children(key)) for key in keys]
            answers = yield from self._session.run.steps(requests, deadline)
            keys = [
                f"{key}/{name}"
                for key, names in zip(keys, answers, strict=True)
                if not isinstance(names, Exception)
                for name in names
            ]
        return keys

    def _read(self, keys: Collection[str], deadline: Deadline) -> Work[Any, dict[str, Record]]:
        answers = yield from self._session.run.steps([(key, get(key)) for key in keys], deadline)
        return {
            key: record_of(answer)
            for key, answer in zip(keys, answers, strict=True)
            if not isinstance(answer, Exception)
        }


def record_of(answer: Any) -> Record:
    """The record that a node is, by what `get` answers."""
    value, stat = answer
    return Record(value, Version(stat.version), stat.mzxid)
