"""Servers of other work queues on this machine: RabbitMQ and PostgreSQL, with their defaults."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hqueue.errors import LocalServerError
from hqueue.local.freeports import choose_ports
from hqueue.local.jars import cache_folder
from hqueue.local.process import LocalProcess, ProcessPlan, end_all, spawn
from hqueue.local.starting import await_listening
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline

__all__ = ["running_postgres", "running_rabbitmq"]

HOST = "127.0.0.1"
START_S = 120.0
ORDERLY_S = 30.0
FETCH_S = 300.0

ERLANG = ("base", "asn1", "crypto", "eldap", "ftp", "inets", "mnesia", "os-mon", "parsetools")
ERLANG += ("public-key", "runtime-tools", "snmp", "ssl", "syntax-tools", "tftp", "tools", "xmerl")
RABBITMQ = ("rabbitmq-server", *(f"erlang-{part}" for part in ERLANG))
"""Debian's packages of a broker, and of what runs it."""

NOBODY = 65534
"""PostgreSQL doesn't run as root."""


@contextlib.contextmanager
def running_rabbitmq(folder: Path) -> Iterator[str]:
    """A broker, its packages fetched before if they are not in the cache, and ended afterwards: no
    process is left.

    Args:
        folder: an empty one, for its data, settings and log.

    Returns:
        Its URL, as clients take it.

    Raises:
        LocalServerError: it could not be fetched, or did not come up.
    """
    packages = _fetched()
    erlang = packages / "usr/lib/erlang"
    ports = choose_ports(("names", "nodes", "amqp"))
    (folder / "plugins").write_text("[].\n")
    environ = {
        "PATH": f"{erlang / 'bin'}:{os.environ['PATH']}",
        "HOME": folder,
        "LANG": "C.UTF-8",
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": ports["names"],
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": ports["amqp"],
        "RABBITMQ_DIST_PORT": ports["nodes"],
        "RABBITMQ_MNESIA_BASE": folder / "data",
        "RABBITMQ_LOG_BASE": folder / "log",
        "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
        "RABBITMQ_CONFIG_FILE": folder / "rabbitmq",
        "RUNNING_UNDER_SYSTEMD": "true",  # The script becomes the broker: SIGTERM reaches that.
    }
    (epmd,) = erlang.glob("erts-*/bin/epmd")
    (script,) = packages.glob("usr/lib/rabbitmq/lib/*/sbin/rabbitmq-server")
    variables = tuple(f"{name}={value}" for name, value in environ.items())
    # Without one of this program's own, the broker starts one that stays.
    names = ProcessPlan(
        "epmd",
        HOST,
        {"names": ports["names"]},
        ("env", *variables, str(epmd)),
        log=str(folder / "epmd.log"),
    )
    broker = ProcessPlan(
        "rabbitmq",
        HOST,
        {"amqp": ports["amqp"]},
        ("env", *variables, "sh", str(script)),
        log=str(folder / "rabbitmq.log"),
        ready_text="Starting broker... completed",
    )
    with _running([names, broker]):
        yield f"amqp://guest:guest@{HOST}:{ports['amqp']}/"


@contextlib.contextmanager
def running_postgres(folder: Path) -> Iterator[str]:
    """A database server of the binaries on the PATH, ended afterwards: no process is left.

    Args:
        folder: an empty one, for its data and its log.

    Returns:
        A database's address, as clients take it.

    Raises:
        LocalServerError: its binaries are not on the PATH, or it did not come up.
    """
    for name in ("initdb", "postgres"):
        if shutil.which(name) is None:
            raise LocalServerError("a program of PostgreSQL is not on the PATH", program=name)
    data = folder / "data"
    data.mkdir()
    become: tuple[str, ...] = ()
    if os.geteuid() == 0:
        os.chown(data, NOBODY, NOBODY)
        become = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        folder.chmod(0o711)
    _run((*become, "initdb", "-U", "bench", "-A", "trust", "-D", str(data)), cwd=data)
    ports = choose_ports(("postgres",))
    options = ("-p", str(ports["postgres"]), "-k", str(data), "-c", f"listen_addresses={HOST}")
    plan = ProcessPlan(
        "postgres",
        HOST,
        ports,
        (*become, "postgres", "-D", str(data), *options),
        log=str(folder / "postgres.log"),
        ready_text="ready to accept connections",
    )
    with _running([plan]):
        yield f"host={HOST} port={ports['postgres']} user=bench dbname=postgres"


@contextlib.contextmanager
def _running(plans: Sequence[ProcessPlan]) -> Iterator[None]:
    """Processes, each started when the one before is up, and ended in the opposite order."""
    started: list[LocalProcess] = []
    try:
        for plan in plans:
            started.append(spawn(plan))
            await_listening(started[-1], deadline=Deadline(SYSTEM_CLOCK, START_S * 1e3))
        yield
    finally:
        for process in reversed(started):
            end_all([process], orderly_s=ORDERLY_S)


def _fetched() -> Path:
    """The folder with RabbitMQ's files, fetched by apt and unpacked there if there are none."""
    kept = cache_folder() / "rabbitmq"
    if kept.exists():
        return kept
    if shutil.which("apt-get") is None:
        raise LocalServerError("RabbitMQ is fetched by apt-get: compare with it on Debian")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="rabbitmq-") as work:
        debs, root = Path(work, "debs"), Path(work, "root")
        debs.mkdir()
        _run(("apt-get", "download", *RABBITMQ), cwd=debs)
        for deb in debs.glob("*.deb"):
            _run(("dpkg", "-x", str(deb), str(root)), cwd=debs)
        start = root / "usr/lib/erlang/bin/erl"
        start.write_text(start.read_text().replace("/usr/lib/erlang", f"{kept}/usr/lib/erlang"))
        root.rename(kept)
    return kept


def _run(command: Sequence[str], cwd: Path) -> None:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_S, check=False
    )
    if done.returncode:
        raise LocalServerError(
            "a program has failed", program=" ".join(command), output=done.stderr[-2_000:]
        )
