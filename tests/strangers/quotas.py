"""``python -m tests.strangers.quotas --seconds 60``: an honest caller of a hub beside ten that are
over their quotas and obey nothing; 1 if it waits for more than twice as long as alone.

The hub demands certificates. The ten have a principal each, or one together, and attack in several
ways. Before each attack the honest caller is alone, and then beside the same attack of another hub:
what it waits for then is the machine, on which all of them run. With ``--without-quotas`` the same
is done to a hub that has none. The figures go to ``reports/quotas.json``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hqueue.net.contexts import TlsContexts
from hqueue.net.tls_files import TlsFiles
from tests.strangers.honest import CALLS, GOOD
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.hubs import HubThread
from tests.support.thrift_calls import field, head, listed

REPORTS = Path(__file__).parents[2] / "reports"
ATTACKERS = 10
QUOTAS = "honest:calls=none, *:calls=50 bytes_in=262144"
EVERY_S = 0.005
WARM_S = 1.0
RATIO_MAX = 2.0
P99_MS_MIN = 2.0
"""A call may take twice as long as alone, as beside the same attack elsewhere, or as this."""
LARGE_BYTES = 1 << 20
CONNECTIONS = 30
"""Of each attacker that has many."""
LATE_S = 30.0

_LARGE = head(b"publishMessages") + b"".join(
    field(11, number, struct.pack(">i", len(text)) + text)
    for number, text in ((1, b"q"), (2, b"x"), (3, b"t"))
)
_LARGE += field(
    15, 4, listed(12, 1, field(11, 4, struct.pack(">i", LARGE_BYTES) + bytes(LARGE_BYTES)) + b"\0")
)
_LARGE += b"\0"
SMALL = CALLS["hub"]


class Attacker:
    """Calls as fast as it is answered, whatever the answers are.

    Args:
        port: the hub's.
        tls: what it speaks TLS with.
        ends_s: when it ends.
    """

    def __init__(self, port: int, tls: TlsContexts, ends_s: float) -> None:
        self._port = port
        self._tls = tls
        self._ends_s = ends_s
        self.answers = 0

    def run(self, kind: str) -> None:
        """Attack until the end."""
        while time.monotonic() < self._ends_s:
            with contextlib.suppress(OSError):
                KINDS[kind](self)

    def calls(self, call: bytes = SMALL) -> None:
        with connect(self._port, self._tls) as sock:
            while time.monotonic() < self._ends_s:
                self._answered(sock, call)

    def large_calls(self) -> None:
        self.calls(_LARGE)

    def calls_by_the_hundred(self) -> None:
        self.calls(100 * SMALL)

    def new_connections(self) -> None:
        with connect(self._port, self._tls) as sock:
            self._answered(sock, SMALL)

    def many_connections(self) -> None:
        with contextlib.ExitStack() as stack:
            many = [stack.enter_context(connect(self._port, self._tls)) for _ in range(CONNECTIONS)]
            while time.monotonic() < self._ends_s:
                for sock in many:
                    sock.sendall(SMALL)
                for sock in many:
                    self._receive(sock)

    def _answered(self, sock: socket.socket, call: bytes) -> None:
        sock.sendall(call)
        self._receive(sock)

    def _receive(self, sock: socket.socket) -> None:
        if not sock.recv(65_536):
            raise ConnectionError
        self.answers += 1


KINDS: dict[str, Callable[[Attacker], None]] = {
    "calls": Attacker.calls,
    "calls by the hundred": Attacker.calls_by_the_hundred,
    "large calls": Attacker.large_calls,
    "many connections": Attacker.many_connections,
    "a new connection for each call": Attacker.new_connections,
}


def contexts(folder: Path, name: str) -> TlsContexts:
    return TlsContexts(TlsFiles(str(folder / "ca.pem"), str(folder / f"{name}.pem")))


def connect(port: int, tls: TlsContexts) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), LATE_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tls.current().wrap_socket(plain, server_hostname="127.0.0.1")


def measure(port: int, tls: TlsContexts, seconds: float) -> list[float]:
    """How many milliseconds each call of an honest caller takes, which keeps its connection."""
    took_ms = []
    ends_s = time.monotonic() + seconds
    with connect(port, tls) as sock:
        while time.monotonic() < ends_s:
            began_s = time.monotonic()
            sock.sendall(SMALL)
            answer = sock.recv(65_536)
            took_ms.append(1e3 * (time.monotonic() - began_s))
            assert GOOD["hub"](answer), answer
            time.sleep(EVERY_S)
    return took_ms


def serve(folder: Path, quotas: str) -> None:
    """Be the hub; for each line that comes, print the processor time that it has used."""
    logging.getLogger().addHandler(logging.NullHandler())
    backend = MemoryBackend().apart(10_000)
    secured: dict[str, Any] = {
        "tls": True,
        "tls_ca": str(folder / "ca.pem"),
        "tls_certificate": str(folder / "hub.pem"),
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(backend.connect()).create_queue("q", partitions=1)
        client = stack.enter_context(backend.connect(**secured))
        hub = stack.enter_context(HubThread(client, "q", quotas=quotas, metrics_port=0))
        print(hub.address.port, flush=True)
        for _ in sys.stdin:
            print(time.process_time(), flush=True)


def attack(folder: Path, port: int, kind: str, principals: int, seconds: float) -> None:
    """Be the attackers; print how many answers they got."""
    ends_s = time.monotonic() + seconds
    attackers = [
        Attacker(port, contexts(folder, f"attacker{number % principals}"), ends_s)
        for number in range(ATTACKERS)
    ]
    threads = [threading.Thread(target=each.run, args=(kind,), daemon=True) for each in attackers]
    for thread in threads:
        thread.start()
    print(flush=True)
    while time.monotonic() < ends_s:
        time.sleep(0.1)
    print(sum(each.answers for each in attackers), flush=True)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tests.strangers.quotas", *map(str, arguments)]


@contextlib.contextmanager
def served(folder: Path, quotas: str) -> Iterator[tuple[int, Callable[[], float]]]:
    """A hub in a process of its own: its port, and what tells its processor time."""
    with subprocess.Popen(
        command("serve", folder, quotas), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        read, write = process.stdout.readline, process.stdin

        def used() -> float:
            write.write("\n")
            write.flush()
            return float(read())

        try:
            yield int(read()), used
        finally:
            process.kill()


def p99(took_ms: list[float]) -> float:
    return sorted(took_ms)[int(0.99 * len(took_ms))]


def compare(
    folder: Path,
    quotas: str,
    seconds: float,
    rounds: int,
    crowds: Sequence[int] = (ATTACKERS, 1),
) -> dict[str, dict[str, float]]:
    """What each attack does to the honest caller, by crowds of so many principals."""
    cases = [(kind, principals) for kind in KINDS for principals in crowds]
    each_s = max(1.0, seconds / (3 * rounds * len(cases)) - WARM_S)
    attack_s = each_s + 1.5 * WARM_S
    honest = contexts(folder, "honest")
    took_ms: dict[str, dict[str, list[float]]] = {}
    cores: dict[str, list[float]] = {}
    answers: dict[str, list[float]] = {}
    with served(folder, quotas) as (port, used), served(folder, quotas) as (elsewhere, _):
        measure(port, honest, WARM_S)
        for _ in range(rounds):
            for kind, principals in cases:
                case = f"{kind}, {principals} principals"
                took = took_ms.setdefault(case, {"alone": [], "elsewhere": [], "attacked": []})
                time.sleep(WARM_S)
                took["alone"] += measure(port, honest, each_s)
                for where, at in (("elsewhere", elsewhere), ("attacked", port)):
                    arguments = command("attack", folder, at, kind, principals, attack_s)
                    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
                        assert process.stdout is not None
                        process.stdout.readline()
                        time.sleep(WARM_S)
                        began_s, began_used_s = time.monotonic(), used()
                        took[where] += measure(port, honest, each_s)
                        used_s, took_s = used() - began_used_s, time.monotonic() - began_s
                        answered = int(process.stdout.read()) / attack_s
                cores.setdefault(case, []).append(used_s / took_s)
                answers.setdefault(case, []).append(answered)
    return {
        case: {
            **{f"{where}_p50_ms": statistics.median(each) for where, each in took.items()},
            **{f"{where}_p99_ms": p99(each) for where, each in took.items()},
            "cores": statistics.median(cores[case]),
            "answers_a_second": statistics.median(answers[case]),
        }
        for case, took in took_ms.items()
    }


def main(
    seconds: Annotated[float, typer.Option(help="In all.")] = 180,
    rounds: Annotated[int, typer.Option(help="Of all attacks.")] = 3,
    without_quotas: Annotated[bool, typer.Option(help="Attack a hub without quotas.")] = False,
    folder: Annotated[Path, typer.Option(help="For the figures.")] = REPORTS,
) -> None:
    """Measure an honest caller of a hub beside ten that are over their quotas."""
    with tempfile.TemporaryDirectory() as made:
        certificates = Certificates(Path(made))
        for name in ("hub", "honest", *(f"attacker{number}" for number in range(ATTACKERS))):
            certificates.make(name)
        figures = compare(Path(made), "" if without_quotas else QUOTAS, seconds, rounds)
    wrong = False
    typer.echo("p99 (p50) in ms: alone, beside the same attack elsewhere, attacked")
    for case, found in figures.items():
        allowed_ms = max(
            RATIO_MAX * found["alone_p99_ms"], RATIO_MAX * found["elsewhere_p99_ms"], P99_MS_MIN
        )
        too_slow = found["attacked_p99_ms"] > allowed_ms
        wrong = wrong or too_slow
        times = "  ".join(
            f"{found[f'{where}_p99_ms']:6.2f} ({found[f'{where}_p50_ms']:5.2f})"
            for where in ("alone", "elsewhere", "attacked")
        )
        typer.echo(
            f"{case:<45} {times}; {found['cores']:.2f} cores, "
            f"{found['answers_a_second']:.0f} answers a second" + ("  TOO SLOW" * too_slow)
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "quotas.json").write_text(json.dumps({"seconds": seconds, "attacks": figures}))
    raise SystemExit(int(wrong))


if __name__ == "__main__":
    match sys.argv[1:2]:
        case ["serve"]:
            serve(Path(sys.argv[2]), sys.argv[3])
        case ["attack"]:
            attack(
                Path(sys.argv[2]),
                int(sys.argv[3]),
                sys.argv[4],
                int(sys.argv[5]),
                float(sys.argv[6]),
            )
        case _:
            typer.run(main)
