"""Runs all checks, one after the other, and bounds each check's time."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from hqueue.doctor.certificates import check_certificates
from hqueue.doctor.files import check_files
from hqueue.doctor.findings import Finding, of_error, ok, wrong
from hqueue.doctor.hbase import check_hbase
from hqueue.doctor.hubs import check_hubs
from hqueue.doctor.kerberos import check_kerberos
from hqueue.doctor.names import check_names
from hqueue.doctor.subject import Subject
from hqueue.doctor.zookeeper import check_zookeeper
from hqueue.errors import HQueueError, SettingsError
from hqueue.runtime.thread_pool import ThreadPool
from hqueue.settings.connection import Settings

__all__ = ["Subject", "examine"]

CHECK_S = 20.0
"""The time limit of a check, unless ``operation_timeout_ms`` is shorter."""

Check = Callable[[Subject], Iterator[Finding]]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("files", check_files),
    ("certificate", check_certificates),
    ("kerberos", check_kerberos),
    ("names", check_names),
    ("zookeeper", check_zookeeper),
    ("hbase", check_hbase),
    ("hubs", check_hubs),
)


def examine(
    load: Callable[[], Settings], checks: tuple[tuple[str, Check], ...] = CHECKS, **given: Any
) -> Iterator[Finding]:
    """Run all checks, and yield each check's findings when it ends. Raises nothing unless it is
    interrupted. A check that hangs stays behind in a thread that ends with the process.

    Args:
        load: returns the settings, or raises a `SettingsError`.
        checks: the checks, and their names.
        given: the other fields of the `Subject`.
    """
    try:
        settings = load()
    except SettingsError as exc:
        yield of_error("settings", exc, "correct the setting that this line names")
        return
    yield ok("settings", "the settings can be read, and fit together")
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
    try:
        for name, check in checks:
            yield from _run(pool, name, check, subject, bound_s)
    finally:
        pool.shutdown(wait=False)


def _run(
    pool: ThreadPool, name: str, check: Check, subject: Subject, bound_s: float
) -> Iterator[Finding]:
    found: list[Finding] = []

    def run() -> None:
        for finding in check(subject):
            found.append(finding)

    try:
        pool.submit(run).result(bound_s)
    except concurrent.futures.TimeoutError:
        yield from list(found)
        yield wrong(
            name,
            f"the check did not end within {bound_s:.0f} s",
            "check that the name service, the KDC and the servers answer: other commands would "
            "wait, too",
        )
    except HQueueError as exc:
        yield from found
        yield of_error(name, exc)
    else:
        yield from found
