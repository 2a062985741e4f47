"""Reading a part of ZooKeeper's tree, a level in one go.

ZooKeeper does not bound its answers, and kazoo reads them whatever their length: unlike a
transaction, a large listing harms nobody but who asks. The largest one of a single node is that of
a queue's partitions: 32,767 names of 9 bytes, which is 300 KB. Memory is bounded by what is found
and by `PIPELINED_MAX` answers under way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from hqueue.runtime.clock import Deadline
from hqueue.zookeeper.requests import children, get
from hqueue.zookeeper.session import Session

__all__ = ["Leaf", "below", "leaves"]


@dataclasses.dataclass(frozen=True, slots=True)
class Leaf:
    """A node with data."""

    data: bytes
    changed: int
    """The transaction that made or changed it: greater with each."""


def below(session: Session, paths: Iterable[str], deadline: Deadline) -> list[str]:
    """The nodes right below these; none below one that doesn't exist."""
    parents = list(paths)
    answers = session.run([(path, children(path)) for path in parents], deadline)
    return [
        f"{path}/{name}"
        for path, names in zip(parents, answers, strict=True)
        if not isinstance(names, Exception)
        for name in names
    ]


def leaves(session: Session, paths: Iterable[str], deadline: Deadline) -> dict[str, Leaf]:
    """Those of these nodes that exist, by path."""
    wanted = list(paths)
    answers = session.run([(path, get(path)) for path in wanted], deadline)
    return {
        path: Leaf(answer[0], answer[1].mzxid)
        for path, answer in zip(wanted, answers, strict=True)
        if not isinstance(answer, Exception)
    }
