"""``python -m tests.strangers --seconds 180``: attack every port of every role; 1 if one gave way.

The figures go to ``reports/strangers.json``.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hqueue.runtime.seldom import AT_ONCE

from .honest import measure
from .proof import HONEST, context_of, make_certificates
from .served import ROLES

REPORTS = Path(__file__).parents[2] / "reports"
PROTOCOLS = {"hub's client": "subscriber"}
"""What is spoken at a port, where it is not its name."""
ALONE = 0.1
"""Of the time, before and after the attack: the slower of both is what the honest caller's times
are compared with, for other things may go on on the machine."""
ELSEWHERE = 0.2
"""Of the time: the same attack goes on at a port that is not the role's. What the honest caller
waits for then is the machine, which has two cores for it, the role and the strangers."""
P99_TIMES_MAX = 5.0
P99_MS_MIN = 5.0
"""A call may take five times as long as alone, as beside the same attack elsewhere, or as this. A
step of Python's C code keeps all others: one reads a text of 4 MiB in 1 to 3 ms, another frees
300,000 structs in 13 ms."""
MEMORY_BYTES_MAX = 512 << 20
"""More than before the attack: half calls and unread answers hold 64 MiB, and reading calls 256."""
CORES_MAX = 1.05
PORTS = 12
BY_TLS = " by TLS"
"""What the name of a port ends with that demands certificates."""
WELL_S = 10.0

ATTACKS = [sys.executable, "-m", "tests.strangers.attacks"]

Figures = dict[str, Any]


class Role:
    """A role that is attacked, in a process of its own.

    Args:
        name: which one.
        folder: of the certificates, if its ports speak TLS.
    """

    def __init__(self, name: str, folder: Path | None = None) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.strangers.served", name, *_listed(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ports: dict[str, int] = self._read()

    def used(self) -> Figures:
        """What it has used so far, and since it was asked last."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def attack(role: Role, name: str, seconds: float, kinds: Sequence[str]) -> Figures:
    """Attack a port, and what came of it."""
    port, protocol = role.ports[name], PROTOCOLS.get(name, name)
    context = None if role.folder is None else context_of(role.folder, HONEST)
    errors: list[str] = []

    def honest(for_s: float) -> list[float]:
        if protocol == "notified":
            time.sleep(for_s)
            return []
        took_ms, wrong = measure(port, protocol, for_s, context)
        errors.extend(wrong)
        return took_ms

    role.used()
    alone_ms = honest(seconds * ALONE)
    before = role.used()
    alone_ms = alone_ms or before["took_ms"]
    more = _listed(role.folder), kinds
    with _sink(role.folder) as sink, _strangers(sink, protocol, seconds * ELSEWHERE, *more):
        elsewhere_ms = honest(seconds * ELSEWHERE)
    before = role.used()
    elsewhere_ms = elsewhere_ms or before["took_ms"]
    attack_s = seconds * (1 - 2 * ALONE - ELSEWHERE)
    with _strangers(port, protocol, attack_s, *more) as stranger:
        began_s = time.monotonic()
        attacked_ms = honest(attack_s)
        after = role.used()
        took_s = time.monotonic() - began_s
        attacked_ms = attacked_ms or after["took_ms"]
        assert stranger.stdout is not None
        done = json.loads(stranger.stdout.read())
    again_ms = honest(seconds * ALONE) or role.used()["took_ms"]
    lines = {
        of: count - before["lines"].get(of, 0)
        for of, count in after["lines"].items()
        if count > before["lines"].get(of, 0)
    }
    return {
        "done": done,
        "calls": len(attacked_ms),
        "errors": errors,
        "calls_after": len(again_ms),
        "alone_p99_ms": max(_p99(alone_ms), _p99(again_ms)),
        "elsewhere_p99_ms": _p99(elsewhere_ms),
        "attacked_p99_ms": _p99(attacked_ms),
        "attacked_max_ms": max(attacked_ms, default=0.0),
        "more_bytes": max(0, after["most_bytes"] - before["most_bytes"]),
        "cores": (after["processor_s"] - before["processor_s"]) / took_s,
        "lines_a_second": max(lines.values(), default=0) / took_s,
        "lines_a_second_max": 1.2 if role.folder is None else 2.4 + AT_ONCE / took_s,
        "last": after["last"],
    }


@contextlib.contextmanager
def _strangers(
    port: int, protocol: str, seconds: float, folder: Sequence[str], kinds: Sequence[str]
) -> Iterator[subprocess.Popen[str]]:
    """A process that attacks a port."""
    given = [str(port), protocol, str(seconds), *(folder or ["-"]), *kinds]
    with subprocess.Popen([*ATTACKS, *given], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def _sink(folder: Path | None) -> Iterator[int]:
    """A port that is no role's."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.strangers.sink", *_listed(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def faults(of: Figures, p99_ms_min: float = P99_MS_MIN) -> list[str]:
    """What is not as it should be.

    Args:
        of: the figures of a port.
        p99_ms_min: as `P99_MS_MIN`.
    """
    allowed_ms = P99_TIMES_MAX * max(of["alone_p99_ms"], of["elsewhere_p99_ms"], p99_ms_min)
    found = []
    if of["errors"]:
        found.append(f"{len(of['errors'])} honest calls failed: {of['errors'][0]}")
    if not of["calls"]:
        found.append("the honest caller was never answered")
    if not of["calls_after"]:
        found.append("the honest caller was not answered after the attack")
    if of["attacked_p99_ms"] > allowed_ms:
        found.append(f"99 of 100 calls took up to {of['attacked_p99_ms']:.0f} ms")
    if of["more_bytes"] > MEMORY_BYTES_MAX:
        found.append(f"it took {of['more_bytes'] >> 20} MiB more")
    if of["cores"] > CORES_MAX:
        found.append(f"it used {of['cores']:.2f} cores")
    if of["lines_a_second"] > of["lines_a_second_max"]:
        found.append(f"it logged {of['lines_a_second']:.1f} lines a second: {of['last']}")
    if min(of["done"].values()) == 0:
        found.append(f"an attack was never made: {of['done']}")
    return found


def _listed(folder: Path | None) -> list[str]:
    return [] if folder is None else [str(folder)]


def _p99(took_ms: list[float]) -> float:
    return sorted(took_ms)[int(0.99 * len(took_ms))] if took_ms else 0.0


def main(
    seconds: Annotated[float, typer.Option(help="In all.")] = 180,
    ports: Annotated[str, typer.Option(help="With commas; all if none.")] = "",
    kinds: Annotated[str, typer.Option(help="Of attacks, with commas; all if none.")] = "",
    folder: Annotated[Path, typer.Option(help="For the figures.")] = REPORTS,
    p99_ms_min: Annotated[
        float, typer.Option(help="Five times this is no fault, however fast a call is alone.")
    ] = P99_MS_MIN,
) -> None:
    """Attack every port of every role beside an honest caller, and see that nobody gives way."""
    chosen, only = (
        [name.strip() for name in names.split(",") if name.strip()] for names in (ports, kinds)
    )
    figures: dict[str, Figures] = {}
    wrong = False
    with tempfile.TemporaryDirectory(prefix="hqueue-strangers-") as made:
        certificates = make_certificates(Path(made))
        roles = [(name, where) for where in (None, certificates) for name in ROLES]
        for name, where in roles:
            role = Role(name, where)
            try:
                for port in role.ports:
                    full = port if where is None else port + BY_TLS
                    if chosen and full not in chosen:
                        continue
                    share_s = seconds / (len(chosen) or PORTS)
                    found = figures[full] = attack(role, port, share_s, only)
                    found["faults"] = faults(found, p99_ms_min)
                    wrong = wrong or bool(found["faults"])
                    typer.echo(
                        f"{full:<20} p99 {found['alone_p99_ms']:6.1f} ms alone, "
                        f"{found['elsewhere_p99_ms']:6.1f} beside an attack elsewhere, "
                        f"{found['attacked_p99_ms']:6.1f} attacked; "
                        f"{found['more_bytes'] >> 20:4} MiB more, {found['cores']:.2f} cores, "
                        f"{found['lines_a_second']:.2f} lines a second  "
                        + ("; ".join(found["faults"]) or "ok")
                    )
            finally:
                role.close()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "strangers.json").write_text(json.dumps({"seconds": seconds, "ports": figures}))
    raise SystemExit(int(wrong))


if __name__ == "__main__":
    typer.run(main)
