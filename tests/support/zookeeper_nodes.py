"""What ZooKeeper itself says of ephemeral nodes, without hqueue."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

__all__ = ["RawNodes"]


class RawNodes:
    """The nodes below a root. A context manager, with a session of its own."""

    def __init__(self, zookeeper: str, root: str) -> None:
        self._kazoo = KazooClient(zookeeper)
        self._root = root

    def __enter__(self) -> RawNodes:
        self._kazoo.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._kazoo.stop()
        self._kazoo.close()

    def owners(self) -> dict[int, list[str]]:
        """The ephemeral nodes by the session that owns them."""
        found: dict[int, list[str]] = collections.defaultdict(list)
        for path in self._below(self._root):
            with contextlib.suppress(NoNodeError):
                stat = self._kazoo.get(path)[1]
                if stat.ephemeralOwner:
                    found[stat.ephemeralOwner].append(path)
        return dict(found)

    def _below(self, path: str) -> Iterator[str]:
        with contextlib.suppress(NoNodeError):
            for name in self._kazoo.get_children(path):
                yield f"{path}/{name}"
                yield from self._below(f"{path}/{name}")
