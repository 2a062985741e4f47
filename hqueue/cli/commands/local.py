"""``hqueue local``: a real HBase on this machine, for development and tests."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hqueue.cli.commands import shared_options
from hqueue.cli.exits import ExitCode, say
from hqueue.cli.output import Output, show_table, write_json
from hqueue.cli.progress import display
from hqueue.cli.registering import group
from hqueue.cli.session import session_of
from hqueue.errors import InvalidInputError, LocalServerError
from hqueue.runtime.extras import check_installed
from hqueue.settings.connection import GATEWAYS, NATIVE
from hqueue.settings.names import with_closest
from hqueue.texts.shown import size_text

if TYPE_CHECKING:
    from hqueue.local.server import LocalServer, ProcessStatus, Status

__all__ = ["register", "start_server"]

check_installed("local", "filelock", "psutil", "tomli_w")  # `hqueue.local` itself loads much.

STANDALONE, SECURE = "standalone", "secure"

Profile = Annotated[
    str, typer.Option(help="standalone, or cluster: HDFS and three region servers.")
]
Secure = Annotated[
    bool,
    typer.Option(
        "--secure", help="Also start a KDC, and secure all connections with Kerberos and TLS."
    ),
]
Gateways = Annotated[
    bool,
    typer.Option(
        "--gateways", help="Start HBase's two Thrift gateways, too, and let clients use them."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def start(
    context: typer.Context,
    profile: Profile = STANDALONE,
    gateways: Gateways = False,
    secure: Secure = False,
    json: Json = False,
) -> None:
    """Start the local server, unless it is running already. It keeps the data of earlier runs."""
    from hqueue.local import status  # noqa: PLC0415  (brings in what starts processes)

    start_server(profile, gateways=gateways, secure=secure)
    session_of(context).close()
    _show(status(), json=json)


def stop(context: typer.Context) -> None:
    """Stop the local server. Its data stays."""
    from hqueue.local import stop as stop_server  # noqa: PLC0415

    session_of(context).close()
    with _waiting("stopping the local server"):
        ran = stop_server()
    say("Stopped." if ran else "No local server was running.")


def status(json: Json = False) -> None:
    """Show the local server and its processes.

    The exit code is 1 if it is not ready, or its disk is full.
    """
    from hqueue.local import status as status_now  # noqa: PLC0415

    found = status_now()
    _show(found, json=json)
    if found.disk_full and found.profile is not None:
        say(
            f"hqueue: the disk of {found.home} is full: the server can't write, and may not "
            "answer. Free some space; if the server does not recover, stop it and start it again."
        )
        raise typer.Exit(ExitCode.FAILED)
    if not found.ready:
        raise typer.Exit(ExitCode.FAILED)


def logs(
    context: typer.Context,
    pattern: Annotated[
        str, typer.Argument(metavar="PROCESS", help="A process, or a pattern: 'thrift*'.")
    ] = "*",
    lines: Annotated[
        int,
        typer.Option("--lines", "-n", min=0, help="Show this many of the last lines of each log."),
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines.")
    ] = False,
) -> None:
    """Show the logs of the local server's processes: the process, a tab, the line."""
    from hqueue.local import status as status_now  # noqa: PLC0415
    from hqueue.local.logs import follow_lines, process_names, read_lines  # noqa: PLC0415

    folder = status_now().home / "logs"
    if not folder.is_dir():
        raise LocalServerError("there are no logs: no local server was started", folder=str(folder))
    logged = process_names(folder)
    if not follow and not fnmatch.filter(logged, pattern):
        unknown = InvalidInputError(
            "no process of the local server has this name", process=pattern, known=", ".join(logged)
        )
        raise with_closest(unknown, pattern, logged)
    found = (
        follow_lines(folder, pattern, last=lines)
        if follow
        else read_lines(folder, pattern, last=lines)
    )
    with Output(prompt=follow) as out:
        for line in found:
            out.write(f"{line.process}\t{line.text}\n".encode("utf-8", "replace"))


def reset(
    context: typer.Context,
    yes: shared_options.Yes = False,
) -> None:
    """Stop the local server and delete all its data, including its queues."""
    from hqueue.local import reset as reset_server  # noqa: PLC0415

    session = session_of(context)
    session.confirm("Delete all data of the local server?", yes=yes)
    session.close()
    with _waiting("resetting the local server"):
        reset_server()
    say("Stopped, and its data is deleted.")


def start_server(
    profile: str = STANDALONE, *, gateways: bool = False, secure: bool = False
) -> LocalServer:
    """Start the local server, or find it running, and show the progress on stderr.

    Raises:
        LocalServerError: it could not be started.
    """
    from hqueue.local import start  # noqa: PLC0415
    from hqueue.local.lifecycle import PROFILES  # noqa: PLC0415

    known = [name for name, each in PROFILES.items() if not each.is_secure]
    if profile not in known:
        text = "unknown profile"
        if profile in PROFILES:
            text = "--profile does not start a secured server: give --secure instead"
        raise InvalidInputError(text, profile=profile, known=", ".join(known))
    if secure and (profile != STANDALONE or gateways):
        raise InvalidInputError(
            "--secure starts one HBase process without gateways: leave out --profile and --gateways"
        )
    with _waiting("starting the local server") as tell:
        return start(SECURE if secure else profile, gateways=gateways, progress=tell)


@contextlib.contextmanager
def _waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Show progress: one changing line on a terminal, else a line for each step."""
    begun_s = time.monotonic()
    if not sys.stderr.isatty():
        yield lambda text: say(f"{time.monotonic() - begun_s:5.1f} s  {text}")
        return
    with display("SpinnerColumn", "{task.description}", "TimeElapsedColumn") as bar:
        task = bar.add_task(what, total=None)
        yield lambda text: bar.update(task, description=text)


def _way(found: Status) -> str | None:
    """How clients without settings reach HBase; None if there is no server."""
    if found.profile is None:
        return None
    return GATEWAYS if found.gateways else NATIVE


def _state(process: ProcessStatus) -> str:
    if process.alive:
        return "paused" if process.paused else "alive"
    return "ended" if process.cause is None else f"ended: {process.cause}"


def _show(found: Status, *, json: bool) -> None:
    if json:
        write_json(
            {
                "home": str(found.home),
                "profile": found.profile,
                "ready": found.ready,
                "hbase": _way(found),
                "gateways": [str(gateway) for gateway in found.gateways],
                "zookeeper": found.zookeeper or None,
                "disk_free_bytes": found.disk_free_bytes,
                "processes": [dataclasses.asdict(process) for process in found.processes],
            }
        )
        return
    free = found.disk_free_bytes
    show_table(
        ("local server", ""),
        (
            ("home", found.home),
            ("profile", found.profile),
            ("ready", "yes" if found.ready else "no"),
            ("hbase", _way(found)),
            ("gateways", ",".join(map(str, found.gateways)) or None),
            ("zookeeper", found.zookeeper or None),
            ("disk free", None if free is None else size_text(free)),
        ),
    )
    show_table(
        ("process", "pid", "state", "memory", "ports"),
        [
            (
                process.name,
                process.pid,
                _state(process),
                size_text(process.rss_bytes),
                ",".join(f"{name}={port}" for name, port in process.ports.items()),
            )
            for process in found.processes
        ],
        numbers=("pid", "memory"),
    )


register = group(
    "Local server",
    "local",
    "Start, stop and look at a real HBase on this machine.",
    *(start, stop, status, logs, reset),
)
