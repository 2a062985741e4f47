"""The keys that notifications of appends are signed with, in ZooKeeper."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kazoo.exceptions import NoNodeError

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.append_keys import AppendKeys
from hqueue.metadata.encoding import decode_append_keys, encode_append_keys
from hqueue.runtime.clock import Deadline
from hqueue.metadata.paths import Paths
from hqueue.zookeeper.requests import create, get, put
from hqueue.zookeeper.session import Session
from hqueue.zookeeper.records import Leaf
from hqueue.zookeeper.tree_cache import TreeCache

__all__ = ["AppendKeyRecord"]

logger = logging.getLogger(__name__)

DEPTH = 1


class AppendKeyRecord:
    """The `AppendKeyPort` on ZooKeeper. Thread-safe. A revision is the node's version.

    The node is made with the rights of ``zookeeper_acl``: who may read it may vouch for batches.
    """

    def __init__(self, session: Session, paths: Paths) -> None:
        self._session = session
        self._top = paths.secrets
        self._path = paths.append_keys

    def read(self) -> AppendKeys | None:
        """As `AppendKeyPort.read`."""
        deadline = self._session.deadline()
        return deadline.run(lambda: self._read(deadline))

    def replace(self, known: AppendKeys | None, keys: AppendKeys) -> AppendKeys | None:
        """As `AppendKeyPort.replace`. When the answer is lost, what is there tells."""
        data = encode_append_keys(keys)
        request = (
            create(self._path, data) if known is None else put(self._path, data, known.revision)
        )
        deadline = self._session.deadline()

        def change() -> AppendKeys | None:
            self._session.run([(self._path, request)], deadline)
            return self._read(deadline)

        return deadline.run(change)

    def watch(self, listener: Callable[[AppendKeys | None], None]) -> TreeCache:
        """As `AppendKeyPort.watch`. The revision is not part of the view."""
        return TreeCache(self._session, self._top, DEPTH, lambda found: listener(self._view(found)))

    def _read(self, deadline: Deadline) -> AppendKeys | None:
        (answer,) = self._session.run([(self._path, get(self._path))], deadline)
        if isinstance(answer, NoNodeError):
            return None
        return decode_append_keys(answer[0], self._path, answer[1].version)

    def _view(self, found: Mapping[str, Leaf]) -> AppendKeys | None:
        leaf = found.get(self._path)
        try:
            return None if leaf is None else decode_append_keys(leaf.data, self._path, 0)
        except UnsupportedFormatError as exc:
            logger.warning("notifications can't be signed, and batches in them count not: %s", exc)
            return None
