"""What the nemesis does to the connections between clients and region servers or gateways."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from tests.support.proxy import Fate

from .nemesis import Harm, NotDoneError
from .schedule import Planned
from .server_faults import ServerFaults
from .ways import Ways

__all__ = ["ConnectionFaults"]


class ConnectionFaults:
    """Faults of requests.

    Args:
        ways: the proxies that producers and readers connect to.
        servers: brings up again what ended because of a fault.
        say: called with what happens.
    """

    def __init__(self, ways: Ways, servers: ServerFaults, say: Callable[[str], None]) -> None:
        self._ways = ways
        self._say = say
        self.kinds = {
            "cut-connections": servers.healed(self._cut),
            "delay-connections": servers.healed(self._delay),
        }

    def _cut(self, item: Planned) -> Harm:
        rng = random.Random(item.target)
        harmed: list[Fate] = []

        def fate(method: str) -> Fate:
            chosen = choose(method)
            if chosen is not Fate.PASS:
                harmed.append(chosen)
            return chosen

        def choose(method: str) -> Fate:
            choice = rng.random()
            if choice < 0.08 and self._ways.may_hold(method):
                return Fate.HOLD
            for bound, other in (
                (0.14, Fate.LOSE_REQUEST),
                (0.22, Fate.LOSE_ANSWER),
                (0.25, Fate.HANG),
            ):
                if choice < bound:
                    return other
            return Fate.PASS

        def mend() -> None:
            self._ways.set_fate(lambda _: Fate.PASS)
            held = self._ways.deliver(self._say)
            kinds = ", ".join(f"{each.name} {n}" for each, n in Counter(harmed).items())
            self._say(f"requests harmed: {kinds}; {held} puts delivered late")
            if not harmed:
                raise NotDoneError("no request was harmed")

        self._ways.set_fate(fate)
        return Harm(self._ways.target, mend)

    def _delay(self, item: Planned) -> Harm:
        rng = random.Random(item.target)

        delayed: list[str] = []

        def fate(method: str) -> Fate:
            delayed.append(method)
            time.sleep(rng.random() * 0.3)
            return Fate.PASS

        self._ways.set_fate(fate)

        def mend() -> None:
            self._ways.set_fate(lambda _: Fate.PASS)
            if not delayed:
                raise NotDoneError("no request was delayed")

        return Harm(self._ways.target, mend)
