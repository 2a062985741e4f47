"""Quotas: how rules are read, and what is counted of whom, by a clock that is moved."""

from __future__ import annotations

import gc

import pytest

from hqueue import SettingsError
from hqueue.net.quotas import UNLIMITED, Account, OverQuota, PortQuotas, Quota, QuotaRules, Quotas
from tests.support.doubles import SteppedClock

HOST = "10.0.0.1", 4711


def test_each_limit_is_that_of_the_first_rule_that_is_for_the_principal_and_has_it() -> None:
    rules = QuotaRules(
        "loader:calls=5000 bytes_in=none, load*:bytes_in=4096 sessions=3, anonymous:calls=1,"
        " *:calls=10 bytes_in=2048 , "
    )
    assert rules.of("loader") == Quota(calls=5_000, sessions=3)
    assert rules.of("load") == Quota(calls=10, bytes_in=4_096, sessions=3)
    assert rules.of("reader") == Quota(calls=10, bytes_in=2_048)
    assert rules.of(None) == Quota(calls=1, bytes_in=2_048)
    assert QuotaRules("loader:calls=1").of("reader") == UNLIMITED
    assert not QuotaRules("")
    assert Quotas(QuotaRules()).port("hub") is None


@pytest.mark.parametrize(
    ("text", "wrong", "reason"),
    [
        ("calls=5", "calls=5", "begins with a principal"),
        (":calls=5", ":calls=5", "begins with a principal"),
        ("a b:calls=5", "a b:calls=5", "begins with a principal"),
        ("*a:calls=5", "*a:calls=5", "begins with a principal"),
        ("a:", "a:", "has no limit"),
        ("*:calls=5, b:", "b:", "has no limit"),
        ("a:cals=5", "cals=5", "no such limit"),
        ("a:calls", "calls", "whole number from 1 to"),
        ("a:calls=", "calls=", "whole number from 1 to"),
        ("a:calls=0", "calls=0", "whole number from 1 to"),
        ("a:calls=-1", "calls=-1", "whole number from 1 to"),
        ("a:calls=1.5", "calls=1.5", "whole number from 1 to"),
        ("a:bytes_in=1000", "bytes_in=1000", "whole number from 1024 to"),
        ("a:calls=5; b:calls=6", "calls=5;", "whole number from 1 to"),
        ("a:calls=5 sessions=1 calls=6", "calls=6", "twice"),
    ],
)
def test_an_error_names_the_part_of_the_rules_that_is_wrong(
    text: str, wrong: str, reason: str
) -> None:
    with pytest.raises(SettingsError, match="principal:limit=number") as caught:
        QuotaRules(text)
    assert caught.value.wrong == wrong
    assert reason in str(caught.value.reason)
    assert caught.value.quotas == text


def test_the_error_names_the_closest_limit() -> None:
    with pytest.raises(SettingsError) as caught:
        QuotaRules("a:byte_in=5000")
    assert caught.value.closest == "bytes_in"


def test_calls_are_admitted_at_the_rate_and_a_second_of_them_at_once() -> None:
    clock = SteppedClock()
    account = Account(Quota(calls=10), "loader", clock)
    assert [account.admit(100) for _ in range(10)] == [None] * 10
    assert account.admit(100) == OverQuota("calls", 100)
    clock.now_ms += 100
    assert account.admit(100) is None
    clock.now_ms += 60_000
    assert [account.admit(100) for _ in range(11)][10] == OverQuota("calls", 100)


def test_a_call_is_admitted_whatever_its_size_and_then_it_is_paid_for() -> None:
    clock = SteppedClock()
    account = Account(Quota(bytes_in=1_000_000), "loader", clock)
    assert account.admit(5_000_000) is None
    over = account.admit(1)
    assert over is not None
    assert (over.limit, round(over.retry_after_ms, -1)) == ("bytes_in", 4_000)
    clock.now_ms += 4_001
    assert account.admit(1) is None
    account.received(1 << 40)
    over = account.admit(1)
    assert over is not None
    assert over.retry_after_ms <= 60_001, "nobody pays for longer than a minute"


def test_answers_are_paid_for_when_they_were_sent() -> None:
    clock = SteppedClock()
    account = Account(Quota(bytes_out=1_000_000), "loader", clock)
    assert account.admit(5_000_000) is None
    account.sent(3_000_000)
    over = account.admit(1)
    assert over is not None
    assert (over.limit, round(over.retry_after_ms, -1)) == ("bytes_out", 2_000)


def test_those_that_are_refused_together_come_back_one_after_another_and_are_admitted() -> None:
    clock = SteppedClock()
    account = Account(Quota(calls=10), "loader", clock)
    while account.admit(1) is None:
        pass
    began_ms = clock.now_ms
    refused = [account.admit(1) for _ in range(20)]
    returns = [each.retry_after_ms for each in refused if each is not None]
    assert returns == [100 * turn for turn in range(2, 22)]
    for each in returns:
        clock.now_ms = began_ms + each
        assert account.admit(1) is None, "a refused call counts once: when it is served"


def test_who_comes_back_too_early_all_the_time_is_asked_to_wait_for_longer_up_to_a_bound() -> None:
    clock = SteppedClock()
    account = Account(Quota(calls=10), "loader", clock)
    while account.admit(1) is None:
        pass
    over = None
    for _ in range(1_000):
        over = account.admit(1) or over
    assert over == OverQuota("calls", 5_000)
    clock.now_ms += 100
    assert account.admit(1) is None, "what it did is not held against others of its principal"


def test_nobody_is_rid_of_a_debt_by_connecting_again_or_from_elsewhere() -> None:
    port = PortQuotas("hub", QuotaRules("*:calls=1"), SteppedClock(), kept_max=2)
    assert port.account("loader", HOST).admit(1) is None
    gc.collect()
    assert port.account("loader", ("10.0.0.2", 1)).admit(1) is not None
    assert port.account("reader", HOST).admit(1) is None
    held = port.account("loader", HOST)
    for number in range(10):
        assert port.account(f"other{number}", HOST).admit(1) is None
    gc.collect()
    assert port.account("loader", HOST) is held, "it is known for as long as it is connected"
    assert port.account("reader", HOST).admit(1) is None, "of those that left the last are kept"
    assert len(port._kept) == 2


def test_without_proof_each_address_is_a_caller_and_of_version_6_each_network() -> None:
    port = PortQuotas("hub", QuotaRules("anonymous:calls=1"), SteppedClock())
    first = port.account(None, HOST)
    assert port.account(None, ("10.0.0.1", 99)) is first
    assert port.account(None, ("::ffff:10.0.0.1", 99, 0, 0)) is first
    assert port.account(None, ("10.0.0.2", 99)) is not first
    one = port.account(None, ("2001:db8::1", 1, 0, 0))
    assert port.account(None, ("2001:db8::ffff:2", 1, 0, 0)) is one
    assert port.account(None, ("2001:db8:0:1::1", 1, 0, 0)) is not one
    assert port.account("loader", HOST) is not first
    assert port.account(None, "") is port.account(None, None)
    assert [first.admit(1), first.admit(1)] == [None, OverQuota("calls", 1_000)]


def test_refusals_are_counted_and_at_most_one_line_a_second_tells_of_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = PortQuotas("hub", QuotaRules("*:calls=1"), SteppedClock())
    for _ in range(100):
        port.refuse(OverQuota("calls", 10), "loader", HOST)
    assert port.refused == {"calls": 100}
    (line,) = [each.getMessage() for each in caplog.records if each.name == "hqueue.audit"]
    assert line == (
        'who="loader" from="10.0.0.1" action="call" port="hub" limit="calls" allowed="no" '
        'reason="the caller is over its quota"'
    )
