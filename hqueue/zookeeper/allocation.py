"""Which of several sessions owns which ephemeral nodes, so that none owns too many."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["SESSION_BYTES_MAX", "Allocation"]

SESSION_BYTES_MAX = 256 * 1024
"""Bytes of the ephemeral nodes of one session. ZooKeeper ends a session by one transaction that
lists all their paths, and reads no transaction back from its log that is larger than
``jute.maxbuffer`` (1 MiB unless set): then it can't start. A quarter of that leaves room for nodes
that an unanswered request made, and for servers that are set to less."""

LENGTH_BYTES = 4
"""What precedes each path in the transaction that ends a session."""


class Allocation:
    """Counts the ephemeral nodes of sessions by the bytes that the end of each will take.

    A node counts from when it is placed, which is before it is created, until it is known to be
    gone. Not thread-safe.

    Args:
        bytes_max: the bound for each session.
        prefix_bytes: what the servers put before each path (the connection string's chroot).
    """

    def __init__(self, bytes_max: int = SESSION_BYTES_MAX, prefix_bytes: int = 0) -> None:
        self._bytes_max = bytes_max
        self._overhead = LENGTH_BYTES + prefix_bytes
        self._bytes: list[int] = [0]
        self._holders: dict[str, int] = {}

    @property
    def bytes_by_session(self) -> Sequence[int]:
        """What is counted for each session. There is at least one."""
        return tuple(self._bytes)

    def holder(self, path: str) -> int | None:
        """The session that a node is placed with; None for one that isn't."""
        return self._holders.get(path)

    def allocate(self, paths: Sequence[str]) -> int:
        """Place nodes that are made together with one session, and count them; returns which.

        Those that are placed already stay where they are: a creation that is repeated must find
        what the first attempt made. The others go to the first session with room, which is a
        further one if there is none. A group that is larger than the bound has a session alone.
        """
        holders = {self._holders.get(path) for path in paths}
        if len(holders) == 1 and (known := holders.pop()) is not None:
            return known
        for path in paths:
            self.settle(path, None)
        needed = sum(map(self._size, paths))
        session = next(
            (
                i
                for i, held in enumerate(self._bytes)
                if not held or held + needed <= self._bytes_max
            ),
            len(self._bytes),
        )
        if session == len(self._bytes):
            self._bytes.append(0)
        for path in paths:
            self.settle(path, session)
        return session

    def settle(self, path: str, session: int | None) -> None:
        """Count a node for the session that really owns it; None for none of them."""
        before = self._holders.pop(path, None)
        if before is not None:
            self._bytes[before] -= self._size(path)
        if session is not None:
            self._holders[path] = session
            self._bytes[session] += self._size(path)

    def _size(self, path: str) -> int:
        return self._overhead + len(path.encode())
