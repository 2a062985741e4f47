"""Runs all checks, one after the other, and bounds each check's time. A check that can say nothing
because an earlier one failed is left out, and one line says so.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

from hqueue.doctor.certificates import check_certificates
from hqueue.doctor.files import check_files
from hqueue.doctor.findings import Finding, of_error, ok, warning, wrong
from hqueue.doctor.hbase import check_hbase
from hqueue.doctor.hubs import check_hubs
from hqueue.doctor.kerberos import check_kerberos
from hqueue.doctor.names import check_names
from hqueue.doctor.subject import Subject
from hqueue.doctor.zookeeper import check_zookeeper, check_zookeeper_servers
from hqueue.errors import HQueueError, SettingsError
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.settings.connection import NATIVE, Settings
from hqueue.settings.security import KERBEROS

__all__ = ["Check", "Subject", "examine", "without_writes"]

CHECK_S = 20.0
"""The time limit of a check, unless ``operation_timeout_ms`` is shorter."""

_CORRECT = "correct the setting that this line names"

RunCheck = Callable[[Subject], Iterator[Finding]]
"""Yields what it finds. A generator may return why checks that build on it can say nothing."""


class Check(NamedTuple):
    """One check."""

    name: str
    run: RunCheck
    needs: Callable[[Subject], Iterable[RunCheck]] = lambda subject: ()
    """Returns the checks without whose success this one can say nothing."""


def _needs_of_zookeeper(subject: Subject) -> Iterator[RunCheck]:
    if subject.settings.zookeeper_authentication == KERBEROS:
        yield check_kerberos
    yield check_zookeeper_servers


def _needs_of_hbase(subject: Subject) -> Iterator[RunCheck]:
    if subject.settings.hbase_authentication == KERBEROS:
        yield check_kerberos
    if subject.settings.hbase == NATIVE and not subject.settings.hbase_masters:
        yield check_zookeeper


def _needs_of_hubs(subject: Subject) -> Iterator[RunCheck]:
    if not subject.hubs and subject.queue is not None:
        yield from (check_zookeeper, check_hbase)


CHECKS = (
    Check("files", check_files),
    Check("certificate", check_certificates),
    Check("kerberos", check_kerberos),
    Check("names", check_names),
    Check("zookeeper", check_zookeeper_servers),
    Check("zookeeper", check_zookeeper, _needs_of_zookeeper),
    Check("hbase", check_hbase, _needs_of_hbase),
    Check("hubs", check_hubs, _needs_of_hubs),
)


def without_writes() -> tuple[Check, ...]:
    """The checks that only read: without the one that creates a node in ZooKeeper."""
    return tuple(check for check in CHECKS if check.run is not check_zookeeper)


def examine(
    load: Callable[[], Settings],
    checks: tuple[Check, ...] = CHECKS,
    *,
    faults: Callable[[], Iterable[HQueueError]] = tuple,
    role_faults: Callable[[], Iterable[HQueueError]] = tuple,
    **given: Any,
) -> Iterator[Finding]:
    """Run all checks, and yield each check's findings when it ends. Raises nothing unless it is
    interrupted. A check that hangs stays behind in a thread that ends with the process.

    Args:
        load: returns the settings, or raises a `SettingsError`.
        checks: the checks.
        faults: returns all errors of the settings, or raises the only one.
        role_faults: returns all errors of the settings of workers and hubs, or raises the only one.
        given: the other fields of the `Subject`.
    """
    try:
        settings = load()
    except SettingsError as exc:
        found = [of_error("settings", each, _CORRECT) for each in _all_of(faults) or [exc]]
        found += [of_error("settings", each, _CORRECT) for each in _all_of(role_faults)]
        yield from dict.fromkeys(found)  # A file that can't be read is a fault of both.
        return
    found = [of_error("settings", each, _CORRECT) for each in _all_of(role_faults)]
    yield from found or [ok("settings", "the settings can be read, and fit together")]
    bound_s = min(CHECK_S, settings.operation_timeout_ms / 1e3)
    # A try may use up to half of what its check has, so that one that failed is repeated.
    try_ms = max(1, int(bound_s * 500))
    subject = Subject(
        dataclasses.replace(
            settings,
            connect_timeout_ms=min(settings.connect_timeout_ms, try_ms),
            request_timeout_ms=min(settings.request_timeout_ms, try_ms),
            operation_timeout_ms=try_ms,
            notify_workers=False,
        ),
        **given,
    )
    pool = ThreadPool(len(checks), "hqueue-doctor")
    left_out: set[RunCheck] = set()
    try:
        for number, check in enumerate(checks):
            if check.run in left_out:
                continue
            reason = yield from _run(pool, check, subject, bound_s)
            if reason is not None:
                later = _depending(check, checks[number + 1 :], subject, left_out)
                if later:
                    left_out |= {each.run for each in later}
                    yield _not_examined(check.name, later, reason)
    finally:
        pool.shutdown(wait=False)


def _all_of(faults: Callable[[], Iterable[HQueueError]]) -> list[HQueueError]:
    try:
        return [*faults()]
    except SettingsError as exc:
        return [exc]


def _depending(
    failed: Check,
    later: Iterable[Check],
    subject: Subject,
    left_out: Iterable[RunCheck],
) -> list[Check]:
    """Return the later checks that need one that failed, themselves or by way of others."""
    missing, found = {failed.run}, []
    for check in later:
        if check.run not in left_out and not missing.isdisjoint(check.needs(subject)):
            missing.add(check.run)
            found.append(check)
    return found


def _not_examined(name: str, later: Iterable[Check], reason: str) -> Finding:
    names = list(dict.fromkeys(each.name for each in later))
    return warning(
        name,
        f"not examined, because {reason}: {', '.join(names)}",
        "correct what the lines above name, and run this again",
    )


def _run(
    pool: ThreadPool, check: Check, subject: Subject, bound_s: float
) -> Generator[Finding, None, str | None]:
    """Yield what a check finds, and return the reason if others can't be examined after it."""
    found: list[Finding] = []

    def run() -> str | None:
        findings = check.run(subject)
        while True:
            try:
                found.append(next(findings))
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    reason: str | None = "that check failed"
    try:
        reason = pool.submit(run).result(bound_s)
    except concurrent.futures.TimeoutError:
        yield from list(found)
        yield wrong(
            check.name,
            f"the check did not end within {bound_s:.0f} s",
            "check that the name service, the KDC and the servers answer: other commands would "
            "wait, too",
        )
    except HQueueError as exc:
        yield from found
        yield of_error(check.name, exc)
    else:
        yield from found
    return reason
