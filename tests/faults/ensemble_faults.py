"""What the nemesis does to ZooKeeper's ensemble of three, and to the leader among them."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable

from hqueue.local import LocalServer

from .hosts import CLIENTS
from .nemesis import Harm, NotDoneError
from .network_faults import NetworkFaults
from .schedule import Planned
from .server_faults import ServerFaults

__all__ = ["EnsembleFaults"]

ASK_S = 2.0
ELECTED_WITHIN_S = 30.0
ANSWER_BYTES_MAX = 4_096


class EnsembleFaults:
    """Faults of one, of most and of the leader of ZooKeeper's servers.

    Args:
        server: the cluster.
        servers: brings up again what ended because of a fault.
        network: cuts the leader off, where hosts are apart.
    """

    def __init__(
        self, server: LocalServer, servers: ServerFaults, network: NetworkFaults | None
    ) -> None:
        self._server = server
        self._servers = servers
        self._names = servers.zookeepers
        kinds: dict[str, Callable[[Planned], Harm]] = {
            "kill-zookeeper": lambda item: servers.killed(self._drawn(item, 1)[0]),
            "kill-zookeeper-leader": lambda _: servers.killed(self.leader()),
            "lose-zookeeper-quorum": lambda item: servers.deposing(
                servers.killed(*self._drawn(item, len(self._names) // 2 + 1))
            ),
        }
        if network is not None:
            kinds |= {
                "cut-off-zookeeper-leader": lambda _: network.cut_off(self.leader()),
                "cut-clients-from-leader": lambda _: network.cut_apart(CLIENTS, self.leader()),
            }
        self.kinds = {name: servers.healed(begin) for name, begin in kinds.items()}

    def serves(self, name: str) -> bool:
        """Whether a server leads or follows now."""
        return "\nMode: " in self._said(name)

    def leader(self) -> str:
        """The server that leads; one is elected within seconds.

        Raises:
            NotDoneError: none was.
        """
        deadline = time.monotonic() + ELECTED_WITHIN_S
        while time.monotonic() < deadline:
            for name in self._names:
                if "\nMode: leader" in self._said(name):
                    return name
            time.sleep(0.2)
        raise NotDoneError("ZooKeeper elected no leader")

    def _said(self, name: str) -> str:
        process = next(each for each in self._server.processes if each.name == name)
        return _answer(process.host, process.ports[name]) if process.alive else ""

    def _drawn(self, item: Planned, count: int) -> list[str]:
        return random.Random(item.target).sample(self._names, count)


def _answer(host: str, port: int) -> str:
    """What a server says of itself; nothing if it does not answer in time."""
    try:
        with socket.create_connection((host, port), ASK_S) as connection:
            connection.sendall(b"srvr")
            said = b""
            while len(said) < ANSWER_BYTES_MAX and (part := connection.recv(ANSWER_BYTES_MAX)):
                said += part
    except OSError:
        return ""
    return said.decode("ascii", "replace")
