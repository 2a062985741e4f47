"""What the nemesis does to several servers at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from .nemesis import Harm
from .schedule import Planned
from .server_faults import ServerFaults
from .together import AT_ONCE

__all__ = ["TogetherFaults"]


class TogetherFaults:
    """Two or three faults of servers at once.

    They begin one after the other, at once, and each harms others than the ones before it did. When
    the last of them has lasted its time they end, the last one first, and only then is everything
    brought up again.

    Args:
        kinds: what brings about each of them alone.
        servers: brings up again what ended because of a fault.
    """

    def __init__(
        self, kinds: Mapping[str, Callable[[Planned], Harm]], servers: ServerFaults
    ) -> None:
        self._kinds = kinds
        self._servers = servers
        self.kinds = {name: servers.healed(self._begin) for name in AT_ONCE}

    def _begin(self, item: Planned) -> Harm:
        with contextlib.ExitStack() as mending:
            mending.enter_context(self._servers.several())
            texts = []
            for one in item.at_once:
                harm = self._kinds[one.fault](one)
                mending.callback(harm.mend)
                texts.append(f"{one.fault} {harm.target}")
            mend = mending.pop_all().close
        return self._servers.deposing(Harm(" and ".join(texts), mend))
