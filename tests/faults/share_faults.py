"""What the nemesis does to share consumers besides what it does to processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from tests.support.proxy import Proxy
from tests.support.zookeeper_faults import cut, zookeeper_proxy

from .nemesis import Harm
from .schedule import Planned

__all__ = ["ShareFaults", "before_each"]


@contextlib.contextmanager
def before_each(zookeeper: str) -> Iterator[list[Proxy]]:
    """A proxy before each of ZooKeeper's servers."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(zookeeper_proxy(one)) for one in zookeeper.split(",")]


class ShareFaults:
    """Faults of all share consumers.

    Args:
        before_zookeeper: the proxies by which they alone reach ZooKeeper.
    """

    def __init__(self, before_zookeeper: Sequence[Proxy]) -> None:
        self._before_zookeeper = before_zookeeper
        self.kinds: dict[str, Callable[[Planned], Harm]] = {"cut-sharers": self._cut}

    def _cut(self, _: Planned) -> Harm:
        cutting = contextlib.ExitStack()
        for proxy in self._before_zookeeper:
            cutting.enter_context(cut(proxy))
        return Harm("all share consumers", cutting.close)
