"""Saying on stderr that what a command waits for is not there, or is something else."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future

from hqueue.cli.exits import say
from hqueue.net.endpoints import Met, meet
from hqueue.runtime.loop import call_later
from hqueue.settings.addresses import Address, zookeeper_servers
from hqueue.settings.connection import Settings, setting_source

__all__ = ["Absence", "hbase_absence", "hub_absence"]

SILENCE_S = 2.0
"""After this long a command says that something is not there: operations try on for a minute."""

MEETING_S = 2.4
ADDRESSES_MAX = 8
"""How long, and at how many addresses, a command looks what listens there."""

_MAY_SPEAK_TLS = (Met.TLS, Met.OTHER, Met.SILENT)


class Absence:
    """Looks, when a command has waited for some time or has failed, whether what it needs is there,
    and says on stderr what was met instead. Once; never raises.

    Args:
        name: what is needed.
        wanted: what that is when it is met.
        addresses: where; one of them is enough.
        source: where the addresses come from, for people.
        where: the addresses as they were given.
        bound_ms: how long an operation tries on.
        advice: what may help.
        by_tls: whether it is called by TLS: a server that does not speak clear may be it.
    """

    def __init__(
        self,
        name: str,
        wanted: Met,
        addresses: Sequence[Address],
        source: str,
        *,
        where: str,
        bound_ms: float,
        advice: str = "",
        by_tls: bool = False,
    ) -> None:
        self._name = name
        self._wanted = wanted
        self._addresses = addresses[:ADDRESSES_MAX]
        self._source = source
        self._where = where
        self._bound_ms = bound_ms
        self._advice = advice
        self._good = {wanted, *(_MAY_SPEAK_TLS if by_tls else ())}
        self._lock = threading.Lock()
        self._looked = False
        self._timer: Future[None] | None = None

    def start(self) -> None:
        """Look before long, unless `cancel` comes before."""
        self._timer = call_later(1e3 * self._part_of(SILENCE_S), self.say, True)

    def cancel(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def say(self, trying: bool) -> None:
        """Look now, if nobody has looked; where somebody looks just now, wait for that."""
        self.cancel()
        with self._lock:
            if self._looked:
                return
            self._looked = True
            found = self._met()
            if found is None:
                return
            text = f"no {self._name} answers at {self._where} (from {self._source})"
            if found:
                text += f": {', '.join(found)}"
            if trying:
                text += f"; still trying for {self._bound_ms / 1e3:.0f} s"
            say(f"hqueue: {text}.{self._advice}")

    def _met(self) -> list[str] | None:
        """What listens there instead; None if what is needed is there."""
        bound_s = self._part_of(MEETING_S) / max(1, len(self._addresses))
        found = []
        for address in self._addresses:
            met = meet(address, bound_s, self._wanted)
            if met in self._good:
                return None
            if met is not Met.NOTHING:
                found.append(f"{address} is {met.value}")
        return found

    def _part_of(self, seconds: float) -> float:
        """This long, or a quarter of what an operation has: it is said before the operation
        ends.
        """
        return min(seconds, self._bound_ms / 4e3)


def hbase_absence(settings: Settings, given: Collection[str] = ()) -> Absence:
    """Of all gateways; natively, of the masters that are named, or else of ZooKeeper.

    Args:
        settings: the settings.
        given: the names of those that were given as options.
    """
    if settings.hbase == "gateways":
        setting, name, wanted = "gateways", "gateway", Met.THRIFT
        by_tls = settings.gateways_tls
        addresses = [
            Address(gateway.host, port)
            for gateway in settings.gateways
            for port in (gateway.thrift1_port, gateway.thrift2_port)
        ]
        where = ", ".join(map(str, settings.gateways))
    elif settings.hbase_masters:
        setting, name, wanted = "hbase_masters", "master", Met.HBASE
        by_tls = settings.hbase_tls
        addresses = list(settings.hbase_masters)
        where = ", ".join(map(str, addresses))
    else:
        setting, name, wanted = "zookeeper", "ZooKeeper", Met.ZOOKEEPER
        by_tls = settings.zookeeper_tls
        addresses = zookeeper_servers(settings.zookeeper)
        where = settings.zookeeper
    return Absence(
        name,
        wanted,
        addresses,
        f"--{setting.replace('_', '-')}" if setting in given else setting_source(setting),
        where=where,
        bound_ms=settings.operation_timeout_ms,
        advice=" 'hqueue local start' starts a local server.",
        by_tls=by_tls,
    )


def hub_absence(hubs: Sequence[Address], source: str, bound_ms: float) -> Absence:
    """Of hubs."""
    where = ", ".join(map(str, hubs))
    return Absence("hub", Met.HUB, hubs, source, where=where, bound_ms=bound_ms)
