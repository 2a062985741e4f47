"""Creates a node and deletes it, to find whether ZooKeeper lets this client keep its nodes, and how
far apart the clocks are.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import NamedTuple

from kazoo.security import ACL

from hqueue.errors import RequestRefusedError
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.settings.connection import Settings
from hqueue.zookeeper.requests import create, delete, exists, get_acl
from hqueue.zookeeper.session import Session

__all__ = ["ZooKeeperProbe", "probe"]

_LETTERS = "rwcda"
"""The permissions, by their bits in a node's ACL."""


class ZooKeeperProbe(NamedTuple):
    """Describes what a probe found."""

    path: str
    """The node below which this client creates its nodes: ``zookeeper_root``, or as much of it as
    exists.
    """
    acl: tuple[str, ...] | None
    """Its ACL, as ``scheme:id:permissions``; None if this client may not see it."""
    refused: RequestRefusedError | None
    """Why this client may not create a node there; None if it may."""
    ahead_ms: float = 0.0
    """How far ZooKeeper's clock is ahead of this machine's."""
    error_ms: float = 0.0
    """The largest error of that measurement."""


def probe(settings: Settings) -> ZooKeeperProbe:
    """Make an ephemeral node, look at its time, and delete it. Bounded by
    ``operation_timeout_ms``.

    Raises:
        StoreUnavailableError: ZooKeeper gave no answer.
        RequestRefusedError: it does not let this client in.
    """
    with contextlib.closing(Session(settings)) as session:
        deadline = session.deadline()
        path = settings.zookeeper_root
        while path and session.one(path, exists(path), deadline) is None:
            path = path.rpartition("/")[0]
        path = path or "/"
        try:
            rules = tuple(map(_written, session.one(path, get_acl(path), deadline)[0]))
        except RequestRefusedError:
            rules = None
        node = f"{path.rstrip('/')}/doctor-{uuid.uuid4().hex}"
        before_ms = SYSTEM_CLOCK.wall_ms()
        try:
            session.one(node, create(node, b"", ephemeral=True, parents=False), deadline)
        except RequestRefusedError as exc:
            return ZooKeeperProbe(path, rules, exc)
        after_ms = SYSTEM_CLOCK.wall_ms()
        made = session.one(node, exists(node), deadline)
        session.one(node, delete(node), deadline)
    between_ms = (before_ms + after_ms) / 2
    return ZooKeeperProbe(
        path, rules, None, made.ctime - between_ms, 1 + (after_ms - before_ms) / 2
    )


def _written(rule: ACL) -> str:
    permissions = "".join(letter for bit, letter in enumerate(_LETTERS) if rule.perms & 1 << bit)
    return f"{rule.id.scheme}:{rule.id.id}:{permissions}"
