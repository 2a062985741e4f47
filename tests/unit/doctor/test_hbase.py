"""HBase: away, a queue that is missing, and rights that are."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import hqueue
from hqueue.doctor import Finding, Level, Subject
from hqueue.doctor import hbase as checked
from hqueue.doctor.findings import ok
from hqueue.doctor.hbase import check_hbase
from hqueue.errors import AuthenticationError, Outcome, RequestRefusedError, StoreUnavailableError
from hqueue.settings.addresses import Address

NOWHERE = Address("127.0.0.1", 1)

Answer = Callable[..., Any]


def refuses(*_: object) -> Any:
    raise RequestRefusedError("HBase refused the request", answer="AccessDeniedException")


def is_away(*_: object) -> Any:
    raise StoreUnavailableError("no answer", outcome=Outcome.NOT_APPLIED)


def examined(
    monkeypatch: pytest.MonkeyPatch,
    *,
    queues: Answer = lambda: [SimpleNamespace(name="events")],
    newest: Answer = lambda *_: None,
    clock: Answer = lambda: (0.0, 1.0),
    record: bytes | None = None,
    servers: Answer = lambda _: (NOWHERE, NOWHERE),
) -> list[Finding]:
    log = SimpleNamespace(newest=newest, clock_offset_ms=clock, record=lambda _: record)
    store = SimpleNamespace(
        tables=SimpleNamespace(list=queues), log=lambda _: log, close=lambda: None
    )
    monkeypatch.setattr(checked, "open_store", lambda _: store)
    monkeypatch.setattr(checked, "first_servers", servers)
    monkeypatch.setattr(
        checked, "look_at_peers", lambda _, found: [ok("hbase", "reached")] if found else []
    )
    settings = hqueue.Settings(connect_timeout_ms=100)
    return [*check_hbase(Subject(settings, queue="events"))][1:]


def test_a_queue_that_may_be_read_and_written_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(monkeypatch)
    assert [each.check for each in found] == ["hbase", "queue", "queue", "clock"]
    assert {each.level for each in found} == {Level.OK}


def test_a_queue_that_is_not_described_to_this_client_can_be_opened_by_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = examined(monkeypatch, queues=list, record=b"{}")
    assert {each.level for each in found} == {Level.OK}


@pytest.mark.parametrize(
    ("given", "text", "advice"),
    [
        ({"newest": refuses}, "HBase refused", "grant 'PRINCIPAL', 'RW', 'events'"),
        ({"clock": refuses}, "HBase refused", "if this client must write, in HBase's shell: grant"),
        ({"newest": is_away}, "no answer", "check that HBase runs"),
        ({"queues": list}, "no queue 'events' exists", "grant 'PRINCIPAL', 'RWC', 'events'"),
        ({"queues": is_away}, "no answer", "check that HBase runs"),
        ({"clock": lambda: (60_000.0, 5.0)}, "is 60.0 s ahead of this machine's", "NTP"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Answer], text: str, advice: str
) -> None:
    [found] = [each for each in examined(monkeypatch, **given) if each.level is Level.WRONG]
    assert text in found.found
    assert advice in found.advice


def test_servers_that_nothing_names_end_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def unproven(_: object) -> Any:
        raise AuthenticationError("the server did not let this client in")

    assert examined(monkeypatch, servers=unproven) == []
    found = next(check_hbase(Subject(hqueue.Settings())))
    assert found.level is Level.WRONG
    assert "docs/security-hbase.md" in found.advice
