"""What the nemesis does to share consumers besides what it does to processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tests.support.proxy import Proxy
from tests.support.zookeeper_faults import cut

from .nemesis import Harm
from .schedule import Planned

__all__ = ["ShareFaults"]


class ShareFaults:
    """Faults of all share consumers.

    Args:
        before_zookeeper: the proxy by which they alone reach ZooKeeper.
    """

    def __init__(self, before_zookeeper: Proxy) -> None:
        self._before_zookeeper = before_zookeeper
        self.kinds: dict[str, Callable[[Planned], Harm]] = {"cut-sharers": self._cut}

    def _cut(self, _: Planned) -> Harm:
        cutting = contextlib.ExitStack()
        cutting.enter_context(cut(self._before_zookeeper))
        return Harm("all share consumers", cutting.close)
