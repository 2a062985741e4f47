"""Bringing up the processes of a layout, stage by stage, until they serve."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from hqueue.errors import LocalServerError
from hqueue.local.freeports import is_listening
from hqueue.local.layout import is_gateway
from hqueue.local.logs import last_lines
from hqueue.local.process import LocalProcess, ProcessPlan, spawn
from hqueue.local.readiness import check_native, check_thrift1, check_thrift2
from hqueue.runtime.clock import Deadline
from hqueue.runtime.logs import Log
from hqueue.runtime.thread_pool import ThreadPool

__all__ = ["PortTakenError", "Progress", "await_listening", "await_serving", "bring_up"]

logger = Log(__name__)

Progress = Callable[[str], None]

PROBE_TIMEOUT_S = 8.0
LOG_LINES = 40
_PAUSE_S = 0.1
_GAVE_UP = "***** ABORTING "

_PORT_TAKEN = re.compile(r"BindException|Address already in use|Could not start ZK at requested")


class PortTakenError(LocalServerError):
    """A process could not bind a port that had been free."""


def bring_up(
    plans: Iterable[ProcessPlan],
    *,
    settings: Mapping[str, Any],
    deadline: Deadline,
    started: Callable[[LocalProcess], None],
    progress: Progress | None = None,
    running: Mapping[str, LocalProcess] = MappingProxyType({}),
) -> list[LocalProcess]:
    """Start all processes and wait until every gateway serves rows; HBase itself, without any.

    Args:
        plans: what to start.
        settings: what clients need to reach HBase natively.
        deadline: when to give up.
        started: called with each process at once after it was started.
        progress: called with a line of text at each step.
        running: those that run already, by name.

    Raises:
        PortTakenError: a process found its port taken.
        LocalServerError: a process ended, or the deadline passed. Whatever was started by then
            still runs.
    """
    tell = progress or logger.info
    processes: list[LocalProcess] = []
    ordered = sorted(plans, key=lambda plan: plan.stage)
    for _, stage in itertools.groupby(ordered, key=lambda plan: plan.stage):
        for plan in stage:
            process = running.get(plan.name)
            if process is None:
                tell(f"starting {plan.name}")
                process = spawn(plan)
                started(process)
            processes.append(process)
        if plan.stage < ordered[-1].stage:
            for process in processes:
                await_listening(process, deadline=deadline, beside=processes)
    if any(is_gateway(process.name) for process in processes):
        tell("waiting until rows can be written and read through every gateway")
        await_serving(processes, deadline=deadline)
    else:
        tell("waiting until rows can be written and read")
        _await_native(processes, settings, deadline)
    for process in processes:
        # What answered at a process's port may have been another program.
        _check_alive(process)
    return processes


def await_listening(
    process: LocalProcess, *, deadline: Deadline, beside: Iterable[LocalProcess] = ()
) -> None:
    """Wait until all ports of a process answer, and it has printed what it prints when it is up.

    Raises:
        PortTakenError: it, or one beside it, found its port taken.
        LocalServerError: it, or one beside it, ended, or the deadline passed.
    """
    checks: list[Callable[[], bool]] = [
        partial(is_listening, process.plan.host, port) for port in process.plan.ports.values()
    ]
    checks.append(partial(_has_printed, process))
    for check in checks:
        while not check():
            for each in (process, *beside):
                _check_alive(each)
            if deadline.expired:
                raise _failure("a process of the local server did not come up in time", process)
            time.sleep(_PAUSE_S)


def _has_printed(process: LocalProcess) -> bool:
    text = process.plan.ready_text
    return not text or any(text in line for line in _printed(process))


def _printed(process: LocalProcess) -> list[str]:
    return last_lines(Path(process.plan.log).with_suffix(".out"), LOG_LINES)


def await_serving(processes: Iterable[LocalProcess], *, deadline: Deadline) -> None:
    """Wait until a row was written and read back through each gateway among the processes.

    Raises:
        PortTakenError: a process found its port taken.
        LocalServerError: a process ended, or the deadline passed.
    """
    processes = list(processes)
    first = [p for p in processes if p.name.startswith("thrift1")]
    second = [p for p in processes if p.name.startswith("thrift2")]
    # The first gateway creates the probe table; the others then find it.
    for group in (first[:1], [*first[1:], *second]):
        if group:
            with ThreadPool(len(group), "hqueue-local-probe") as pool:
                for result in [
                    pool.submit(_await_gateway, gateway, processes, deadline) for gateway in group
                ]:
                    result.result()


def _await_gateway(gateway: LocalProcess, beside: list[LocalProcess], deadline: Deadline) -> None:
    await_listening(gateway, deadline=deadline, beside=beside)
    check = check_thrift1 if gateway.name.startswith("thrift1") else check_thrift2
    (port,) = gateway.plan.ports.values()
    _await_row(
        gateway.name,
        lambda: check(gateway.plan.host, port, PROBE_TIMEOUT_S),
        beside,
        deadline,
        gateway,
        *(each for each in beside if each.name == "master"),
    )


def _await_native(
    processes: list[LocalProcess], settings: Mapping[str, Any], deadline: Deadline
) -> None:
    for process in processes:
        await_listening(process, deadline=deadline, beside=processes)
    _await_row(
        "HBase",
        lambda: check_native(settings, PROBE_TIMEOUT_S),
        processes,
        deadline,
        next(process for process in processes if process.name == "master"),
    )


def _await_row(
    name: str,
    check: Callable[[], str | None],
    beside: list[LocalProcess],
    deadline: Deadline,
    *shown: LocalProcess,
) -> None:
    """Repeat a check until it finds nothing wrong; `shown` are whose logs a failure shows."""
    while (wrong := check()) is not None:
        logger.debug("%s is not ready yet: %s", name, wrong)
        for each in beside:
            _check_alive(each)
        if deadline.expired:
            raise _failure("the local server did not serve in time", *shown, said=wrong)
        time.sleep(_PAUSE_S)


def _check_alive(process: LocalProcess) -> None:
    if process.alive():
        # A master that gave up may hang instead of ending.
        if any(_GAVE_UP in line for line in last_lines(Path(process.plan.log), 1_000)):
            raise _failure("a process of the local server gave up while it was started", process)
        return
    failure = _failure("a process of the local server ended while it was started", process)
    if _PORT_TAKEN.search(str(failure.facts["log"])):
        raise PortTakenError(failure.text, **cast(dict[str, Any], failure.facts))
    raise failure


def _failure(text: str, *processes: LocalProcess, **facts: Any) -> LocalServerError:
    lines: list[str] = []
    for process in processes:
        log = Path(process.plan.log)
        lines += [*last_lines(log.with_suffix(".out"), 10), *last_lines(log, LOG_LINES)]
    return LocalServerError(
        f"{text}; its last log lines follow, the whole log is in the file named",
        process=processes[0].name,
        file=processes[0].plan.log,
        **facts,
        log="\n".join(lines),
    )
