"""What the ports of this process do, as those see it that serve them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from hqueue.net.guard import PortGuard
from hqueue.rpc.callers import Callers
from hqueue.rpc.served_connection import ServedConnection

__all__ = ["WatchedPorts", "watched"]


class WatchedPorts:
    """Which refusals they counted, and whose requests they served."""

    def __init__(self) -> None:
        self.refused: list[tuple[str, str, str | None, str]] = []
        """Each with the name of the port, the kind of the refusal, the principal, and why."""
        self.served: list[str | None] = []


@contextlib.contextmanager
def watched() -> Iterator[WatchedPorts]:
    """All ports, as long as the block runs."""
    seen = WatchedPorts()
    refuse, serve = PortGuard.refuse, Callers.serve

    def refused(guard: PortGuard, kind: str, principal: str | None, *more: Any) -> None:
        seen.refused.append((guard.port, kind, principal, more[-1]))
        refuse(guard, kind, principal, *more)

    def served(callers: Callers[Any], caller: ServedConnection) -> None:
        seen.served.append(caller.principal)
        serve(callers, caller)

    with (
        mock.patch.object(PortGuard, "refuse", refused),
        mock.patch.object(Callers, "serve", served),
    ):
        yield seen
