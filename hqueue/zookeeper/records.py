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

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

from hqueue.errors import StoreUnavailableError
from hqueue.metadata.ports import ANY, NEW, Change, Record, Version
from hqueue.runtime.clock import Deadline
from hqueue.zookeeper.requests import children, create, delete, get, put
from hqueue.zookeeper.session import Request, Session

__all__ = ["ZooKeeperRecords", "record_of"]

ANY_VERSION = -1
FIRST_VERSION = 0


class ZooKeeperRecords:
    """The `Records` on ZooKeeper: a version is the node's. Thread-safe.

    Nodes that lead to others are records as well, and empty.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def keys(self, prefix: str, depth: int) -> Sequence[str]:
        """As `Records.keys`: a level of the tree in one go."""
        deadline = self._session.deadline()
        return deadline.run(partial(self._keys, prefix, depth, deadline))

    def list(self, prefix: str, depth: int) -> dict[str, Record]:
        """As `Records.list`."""
        deadline = self._session.deadline()
        return deadline.run(
            lambda: self._read(self._keys(prefix, depth, deadline), deadline),
        )

    def read(self, keys: Iterable[str]) -> dict[str, Record]:
        """As `Records.read`."""
        wanted = [*keys]
        deadline = self._session.deadline()
        return deadline.run(partial(self._read, wanted, deadline))

    def create(self, values: Mapping[str, bytes]) -> dict[str, Record]:
        """As `Records.create`."""
        requests = [(key, create(key, value)) for key, value in values.items()]
        deadline = self._session.deadline()

        def create_missing() -> dict[str, Record]:
            answers = self._session.run(requests, deadline)
            found = self._read(values, deadline)
            gone = any(isinstance(answer, NoNodeError) for answer in answers)
            if gone or len(found) < len(values):
                raise StoreUnavailableError("records are deleted while they are created")
            return found

        return deadline.run(create_missing)

    def write(self, changes: Mapping[str, Change]) -> dict[str, Version | None]:
        """As `Records.write`."""
        requests = [(key, _write(key, change)) for key, change in changes.items()]
        deadline = self._session.deadline()
        in_doubt = False

        def change() -> dict[str, Version | None]:
            nonlocal in_doubt
            try:
                answers = self._session.run(requests, deadline)
            except StoreUnavailableError:
                in_doubt = True
                raise
            written = {key: _version(answer) for key, answer in zip(changes, answers, strict=True)}
            refused = [key for key, version in written.items() if version is None]
            if in_doubt and refused:
                for key, record in self._read(refused, deadline).items():
                    if _is_of(record, changes[key]):
                        written[key] = record.version
            return written

        return deadline.run(change)

    def delete(self, versions: Mapping[str, Version], *, levels_above: int = 0) -> Collection[str]:
        """As `Records.delete`. A node with a child can't be deleted."""
        requests = [(key, delete(key, _expected(version))) for key, version in versions.items()]
        deadline = self._session.deadline()

        def remove() -> Collection[str]:
            answers = self._session.run(requests, deadline)
            stay = {
                key
                for key, answer in zip(versions, answers, strict=True)
                if isinstance(answer, (NotEmptyError, BadVersionError))
            }
            above = versions.keys() - stay
            for _ in range(levels_above):
                above = {key.rpartition("/")[0] for key in above}
                self._session.run([(key, delete(key)) for key in sorted(above)], deadline)
            return stay

        return deadline.run(remove)

    def _keys(self, prefix: str, depth: int, deadline: Deadline) -> Sequence[str]:
        keys = [prefix]
        for _ in range(depth):
            answers = self._session.run([(key, children(key)) for key in keys], deadline)
            keys = [
                f"{key}/{name}"
                for key, names in zip(keys, answers, strict=True)
                if not isinstance(names, Exception)
                for name in names
            ]
        return keys

    def _read(self, keys: Collection[str], deadline: Deadline) -> dict[str, Record]:
        answers = self._session.run([(key, get(key)) for key in keys], deadline)
        return {
            key: record_of(answer)
            for key, answer in zip(keys, answers, strict=True)
            if not isinstance(answer, Exception)
        }


def record_of(answer: Any) -> Record:
    """The record that a node is, by what `get` answers."""
    value, stat = answer
    return Record(value, Version(stat.version), stat.mzxid)


def _write(key: str, change: Change) -> Request:
    if change.version == NEW:
        return create(key, change.value)
    return put(key, change.value, _expected(change.version))


def _expected(version: Version) -> int:
    return ANY_VERSION if version == ANY else version


def _version(answer: Any) -> Version | None:
    """The version of a node that was written, by what its request answers."""
    if isinstance(answer, (BadVersionError, NoNodeError, NodeExistsError)):
        return None
    return Version(FIRST_VERSION if isinstance(answer, str) else answer.version)


def _is_of(record: Record, change: Change) -> bool:
    """Whether a record is what this change makes."""
    after = FIRST_VERSION if change.version == NEW else change.version + 1
    return record.value == change.value and (change.version == ANY or record.version == after)
