"""What must happen in a child process after a fork.

A forked child shares its parent's sockets and may inherit locks that nobody will ever release.
Objects that hold either register here and are called in the child, before any of its code runs.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from hqueue.errors import ClosedError

__all__ = ["OwnProcess", "register"]


class ForkAware(Protocol):
    def after_fork_in_child(self) -> None:
        """Drop inherited connections without closing them, and replace the locks."""


_registered: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def register(item: ForkAware) -> None:
    """Call ``item.after_fork_in_child()`` in every forked child for as long as `item` lives."""
    _registered.add(item)


def _after_fork_in_child() -> None:
    for item in list(_registered):
        item.after_fork_in_child()


class OwnProcess:
    """The process that made an object which its forked children can't use.

    Args:
        what: the object, for errors, like ``a consumer``.
    """

    def __init__(self, what: str) -> None:
        self._pid = os.getpid()
        self._what = what

    @property
    def is_left(self) -> bool:
        """Whether this code runs in a forked child of that process."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Check that this code runs in that process.

        Raises:
            ClosedError: it runs in a forked child.
        """
        if self.is_left:
            raise ClosedError(f"{self._what} can't be used in a forked child; make one there")


os.register_at_fork(after_in_child=_after_fork_in_child)
