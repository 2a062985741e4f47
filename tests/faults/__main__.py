"""``python -m tests.faults``: run, print the verdict, and exit accordingly.

Exit codes: 0 all promises were kept; 1 one was broken; 2 wrong usage; 3 the run itself failed,
or a kind of fault never took place, so that it proves nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hqueue import local
from hqueue.local.cluster import cluster_on, host_names, loopback
from hqueue.local.layout import Profile
from hqueue.local.lifecycle import start_profile

from .disks import PROGRAMS, can_have_disks, can_slow_disks, disks_at
from .hosts import Hosts, can_have_hosts, hosts_apart
from .parts import PartsError, folder_of, part_after
from .picture import draw
from .power_faults import disk_folders
from .report import figures, summary, unproven
from .run import Options, Result, Surroundings, run
from .schedule import FAULTS, GATEWAYS, NATIVE, TRACKS, kinds, schedule
from .server_clocks import ServerClocks, can_set_clocks
from .together import AT_ONCE, can_draw
from .versions import Code, NoOlderCodeError, older_code

ZOOKEEPERS = 3
PLANNED_SHOWN = 30
ALL_UPGRADES = "upgrade"
REPORTS = Path(__file__).parents[2] / "reports"


def main(
    seed: Annotated[int | None, typer.Option(help="Of the schedule; random if none.")] = None,
    duration: Annotated[float, typer.Option(help="Seconds of faults.")] = 180,
    faults: Annotated[
        str,
        typer.Option(
            help="Kinds, with commas, or whom they harm (`servers`: all kinds that harm servers); "
            "all if none, except those of upgrades (`upgrade`: all of these)."
        ),
    ] = "",
    folder: Annotated[Path, typer.Option(help="For the report.")] = REPORTS,
    hbase: Annotated[
        str, typer.Option(help="How clients reach HBase: native or gateways.")
    ] = NATIVE,
    *,
    without: Annotated[str, typer.Option(help="Kinds to leave out, with commas.")] = "",
    apart: Annotated[
        bool | None,
        typer.Option(
            help="Each server in a network namespace with an address of its own, for faults of the "
            "network: if none, where root can have them, for native.",
        ),
    ] = None,
    power: Annotated[
        bool | None,
        typer.Option(
            help="Each server that stores anything on a disk of its own, for losses of power: if "
            "none, where root can have them, for native.",
        ),
    ] = None,
    part: Annotated[
        int | None,
        typer.Option(
            help="Which part of a long run this is, from 1 on: the schedule goes on where the part "
            "before it ended, whose report is in the same folder.",
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only print how the schedule begins.")
    ] = False,
) -> None:
    """Harm a cluster under load, and check what became of every message."""
    if hbase not in (NATIVE, GATEWAYS):
        raise typer.BadParameter(f"{hbase}: it is {NATIVE} or {GATEWAYS}")
    if apart and not can_have_hosts():
        raise typer.BadParameter("--apart takes root, and ip (of iproute2)")
    if apart is None:
        apart = hbase == NATIVE and can_have_hosts()
    if power and not can_have_disks():
        raise typer.BadParameter(f"--power takes root, loop devices, and {', '.join(PROGRAMS)}")
    if power is None:
        power = hbase == NATIVE and can_have_disks()
    upgrades = ALL_UPGRADES in faults
    known = kinds(
        hbase,
        apart=apart,
        power=power,
        slow=can_slow_disks(),
        clocks=can_set_clocks(),
        upgrades=upgrades,
    )
    chosen = _chosen(_names(faults, known) or known, _names(without, known), known)
    try:
        older = older_code() if upgrades else None
    except NoOlderCodeError as exc:
        raise typer.BadParameter(str(exc)) from exc
    if part is not None and seed is None:
        raise typer.BadParameter("--part takes --seed: all parts of a run have the same")
    seed = random.randrange(10**6) if seed is None else seed
    try:
        this_part = part_after(folder, seed, part, chosen) if part is not None else None
    except PartsError as exc:
        raise typer.BadParameter(str(exc)) from exc
    if plan:
        for track in schedule(seed, chosen, this_part.planned if this_part else {}):
            typer.echo(f"{track.name}:")
            for item in itertools.islice(track.planned, PLANNED_SHOWN):
                typer.echo(item)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that all processes are ended.
    report = folder / folder_of(seed, part)
    options = Options(seed, duration, chosen, report, hbase, apart, power, this_part)
    result = _run(options, older)
    raise typer.Exit(1 if result.violations else 3 if unproven(result) else 0)


def _chosen(wanted: Sequence[str], without: Sequence[str], known: Sequence[str]) -> list[str]:
    """The kinds of a run, of those that are known; each of the others must be some kind."""
    chosen = [name for name in wanted if name not in without]
    for name in (*chosen, *without):
        if name not in (known if name in chosen else FAULTS):
            raise typer.BadParameter(f"{name}: the faults here are {', '.join(known)}")
    for name in AT_ONCE.keys() & chosen:
        if not can_draw(AT_ONCE[name], chosen):
            raise typer.BadParameter(
                f"{name} draws from the other kinds of the run: name as many of servers as may be "
                "under way at once"
            )
    return chosen


def _names(text: str, known: Sequence[str]) -> list[str]:
    """The names in a text; `ALL_UPGRADES` stands for all those of upgrades, and the name of a track
    for all others on it.
    """
    groups = {ALL_UPGRADES: [name for name in known if FAULTS[name].upgrades]}
    for track in TRACKS:
        on_it = [name for name in known if FAULTS[name].track == track]
        groups[track] = [name for name in on_it if not FAULTS[name].upgrades]
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [each for name in names for each in groups.get(name) or (name,)]


def _run(options: Options, older: Code | None) -> Result:
    """Run it on a cluster of its own, and write the report."""
    began = time.monotonic()

    def say(text: str) -> None:
        typer.echo(f"{time.monotonic() - began:7.1f} s  {text}")

    nothing = contextlib.nullcontext()
    say(f"seed {options.chosen_by}; starting a cluster, {options.hbase}")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="hqueue-faults-") as home,
            hosts_apart(host_names(ZOOKEEPERS)) if options.apart else nothing as hosts,
            disks_at(*disk_folders(Path(home), ZOOKEEPERS)) if options.power else nothing as disks,
            contextlib.nullcontext(_clocks(options, Path(home))) as clocks,
            start_profile(
                _cluster(hosts, clocks),
                gateways=options.hbase == GATEWAYS,
                home=home,
            ) as server,
        ):
            try:
                around = Surroundings(hosts, disks, clocks)
                result = run(options, server, say, around, older=older)
            except BaseException:
                _keep_logs(server, options.folder)
                raise
            if result.violations or unproven(result):
                _keep_logs(server, options.folder)
    except Exception as exc:
        traceback.print_exc()
        raise typer.Exit(3) from exc
    draw(result, options.folder / "timeline.png")
    (options.folder / "figures.json").write_text(json.dumps(figures(result), indent=2) + "\n")
    typer.echo(summary(result))
    typer.echo(f"report: {options.folder}")
    return result


def _clocks(options: Options, home: Path) -> ServerClocks | None:
    """Clocks of all servers, if one of these faults sets any."""
    if not any(FAULTS[kind].clocks for kind in options.faults):
        return None
    return ServerClocks(home / "clocks", host_names(ZOOKEEPERS))


def _cluster(hosts: Hosts | None, clocks: ServerClocks | None) -> Profile:
    """The cluster, on these hosts if they are apart, with these clocks if they have some."""
    on = hosts.of_cluster() if hosts else loopback(ZOOKEEPERS)
    return cluster_on(clocks.on(on) if clocks else on, ZOOKEEPERS)


def _keep_logs(server: local.LocalServer, folder: Path) -> None:
    for line in server.last_log_lines(20):
        typer.echo(f"{line.process}: {line.text}")
    shutil.copytree(server.logs_dir, folder / "servers", dirs_exist_ok=True)


if __name__ == "__main__":
    typer.run(main)
