"""Who may do what by access rules, and the record that has them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from hqueue.errors import BadVersionError, InvalidInputError, UnsupportedFormatError
from hqueue.metadata.access_rules import RULES_MAX, AccessRule, AccessRules, Login, Operation
from hqueue.metadata.encoding import decode_access_rules, encode_access_rules
from hqueue.metadata.ports import ANY, NEW, Change
from tests.support.memory.metadata import MemoryCoordination, MemoryServer

PUBLISH, SUBSCRIBE, MOVE = Operation.PUBLISH, Operation.SUBSCRIBE, Operation.MOVE

RULES = AccessRules(
    [
        AccessRule("loader-*", frozenset({PUBLISH, Operation.CREATE}), "events", "clicks*"),
        AccessRule("audit", frozenset({SUBSCRIBE}), "*", "*", "report-*"),
        AccessRule("reader", frozenset({SUBSCRIBE}), "events"),
        AccessRule("*", frozenset({MOVE}), "ns:*", "t"),
    ]
)


@pytest.mark.parametrize(
    ("asked", "own", "allowed"),
    [
        (("loader-1", PUBLISH, "events", "clicks", None), True, True),
        (("loader-1", PUBLISH, "events", "clicks-2", "loader-1"), True, True),
        (("loader-1", PUBLISH, "events", "clicks", "other"), False, False),
        (("loader-1", PUBLISH, "events", "click", None), True, False),
        (("loader-1", PUBLISH, "events", None, None), True, True),
        (("loader-1", PUBLISH, "events", "*", None), True, False),
        (("loader-1", PUBLISH, "events2", "clicks", None), True, False),
        (("loader", PUBLISH, "events", "clicks", None), True, False),
        (("loader-1", SUBSCRIBE, "events", "clicks", None), True, False),
        (("audit", SUBSCRIBE, "events", "*", "report-1"), False, True),
        (("audit", SUBSCRIBE, "events", "t", "report-1"), True, True),
        (("audit", SUBSCRIBE, "events", "t", "audit"), True, False),
        (("audit", SUBSCRIBE, "events", "t", None), True, True),
        (("auditor", SUBSCRIBE, "events", "t", None), True, False),
        (("reader", SUBSCRIBE, "events", "t", "reader"), True, True),
        (("reader", SUBSCRIBE, "events", "*", "free"), True, True),
        (("reader", SUBSCRIBE, "events", "t", "audit"), False, False),
        (("anyone", MOVE, "ns:q", "t", None), True, True),
        (("anyone", MOVE, "ns2:q", "t", None), True, False),
    ],
)
def test_what_no_rule_allows_is_refused(asked: tuple[Any, ...], own: bool, allowed: bool) -> None:
    for _ in range(2):  # The second time from what is remembered of the principal.
        rule = RULES.rule_for(*asked, own=own)
        assert (rule is not None) == allowed


def matches(pattern: str, text: str) -> bool:
    return text[: len(pattern) - 1] == pattern[:-1] if pattern[-1] == "*" else text == pattern


def small_rules() -> Iterator[AccessRule]:
    for principal, queue, topic, name in itertools.product(
        ("p", "p*", "*"), ("q", "*"), ("t", "t*"), (None, "n", "*")
    ):
        for operations in ({PUBLISH}, {PUBLISH, SUBSCRIBE}):
            yield AccessRule(principal, frozenset(operations), queue, topic, name)


def test_every_decision_of_a_small_world_is_as_the_docs_say_and_rules_only_add() -> None:
    rules = list(small_rules())
    asked = list(
        itertools.product(
            ("p", "pp", "o"), (PUBLISH, SUBSCRIBE, MOVE), ("q", "r"), (None, "*", "t", "tt", "u"),
            (None, "n", "m"), (True, False),
        )
    )  # fmt: skip
    for rule in rules:
        alone = AccessRules([rule])
        both = AccessRules([rule, AccessRule("o", frozenset({MOVE}), "r", "u")])
        for principal, operation, queue, topic, name, own in asked:
            expected = (
                matches(rule.principal, principal)
                and operation in rule.operations
                and matches(rule.queue, queue)
                and (topic is None or matches(rule.topic, topic))
                and (name is None or (own if rule.name is None else matches(rule.name, name)))
            )
            given = principal, operation, queue, topic, name
            assert alone.rule_for(*given, own=own) == (rule if expected else None), given
            if expected:
                assert both.rule_for(*given, own=own) == rule


def test_granting_and_revoking_are_each_others_opposites_whatever_the_order() -> None:
    rules = list(small_rules())
    for one, other in itertools.product(rules[::5], rules[::7]):
        both = AccessRules().granted(one).granted(other)
        assert both == AccessRules().granted(other).granted(one) == both.granted(one)
        assert len(both) == (1 if one.scope == other.scope else 2)
        left = both.revoked(other)
        assert left == AccessRules([one]).revoked(other)
        assert left.revoked(one) == AccessRules()
    assert RULES.revoked(AccessRule("loader-*", frozenset({PUBLISH}))) == RULES


@pytest.mark.parametrize(
    "given",
    [
        {"principal": ""},
        {"principal": "a b"},
        {"principal": "-*"},
        {"principal": 7},
        {"operations": frozenset()},
        {"queue": ""},
        {"queue": "a/b*"},
        {"queue": "hbase:*"},
        {"topic": ""},
        {"topic": "x" * 256},
        {"name": ""},
        {"name": "a/b"},
    ],
)
def test_a_rule_that_could_match_nothing_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        AccessRule(**{"principal": "p", "operations": frozenset({PUBLISH}), **given})  # type: ignore[arg-type]


def test_a_queue_has_one_name_in_rules_too() -> None:
    assert AccessRule("p", frozenset({PUBLISH}), "default:q").queue == "q"
    assert AccessRule("p", frozenset({PUBLISH}), "default:q*").queue == "q*"


def test_what_was_decided_once_is_not_searched_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = AccessRules(AccessRule(f"p{number}", frozenset({PUBLISH})) for number in range(99))
    assert rules.rule_for("p98", PUBLISH, "q", "t") is not None
    assert rules.rule_for("p98", MOVE, "q", "t") is None
    monkeypatch.setattr(AccessRule, "allows", None)
    assert rules.rule_for("p98", PUBLISH, "q", "t") is not None
    assert rules.rule_for("p98", MOVE, "q", "t") is None


def test_there_are_no_more_rules_than_a_record_can_have() -> None:
    many = [AccessRule(f"p{number}", frozenset({PUBLISH})) for number in range(RULES_MAX)]
    assert len(AccessRules(many)) == RULES_MAX
    with pytest.raises(InvalidInputError, match="too many access rules"):
        AccessRules(many).granted(AccessRule("q", frozenset({PUBLISH})))


GOLDEN = (
    b'{"version": 1, "rules": ['
    b'{"principal": "*", "operations": ["move"], "queue": "ns:*", "topic": "t"}, '
    b'{"principal": "audit", "operations": ["subscribe"], "queue": "*", "topic": "*", '
    b'"name": "report-*"}, '
    b'{"principal": "loader-*", "operations": ["create", "publish"], "queue": "events", '
    b'"topic": "clicks*"}, '
    b'{"principal": "reader", "operations": ["subscribe"], "queue": "events", "topic": "*"}]}'
)


def test_the_record_has_these_bytes() -> None:
    assert encode_access_rules(RULES) == GOLDEN
    read = decode_access_rules(GOLDEN, "/path", 7)
    assert (read, read.revision) == (RULES, 7)
    assert list(read) == list(RULES)
    assert {each.value for each in Operation} == {
        "create", "publish", "read", "subscribe", "consume", "unsubscribe", "move", "delete",
        "administer",
    }  # fmt: skip


def test_the_record_says_who_changed_it_if_that_is_known() -> None:
    login = Login("ops", "certificate")
    written = encode_access_rules(RULES, login)
    assert written == GOLDEN[:-1] + b', "changed_by": {"name": "ops", "kind": "certificate"}}'
    read = decode_access_rules(written, "/path", NEW)
    assert (read, read.changed_by) == (RULES, login)
    assert decode_access_rules(GOLDEN, "/path", NEW).changed_by is None


@pytest.mark.parametrize(
    "changed",
    [
        {"operations": ["publish", "fly"]},
        {"operations": "publish"},
        {"operations": []},
        {"principal": "a b"},
        {"queue": None},
        {"topic": 7},
        {"name": None},
        {"name": ["n"]},
    ],
)
def test_a_record_with_a_rule_that_is_not_understood_gives_no_rule_at_all(
    changed: dict[str, object],
) -> None:
    fields = json.loads(GOLDEN)
    fields["rules"][2] |= changed
    with pytest.raises(UnsupportedFormatError):
        decode_access_rules(json.dumps(fields).encode(), "/path", NEW)


@pytest.fixture
def coordination() -> MemoryCoordination:
    return MemoryCoordination(MemoryServer())


def test_a_change_keeps_what_others_change_meanwhile(coordination: MemoryCoordination) -> None:
    record = coordination.access_rules
    other = AccessRule("other", frozenset({MOVE}))
    mine = AccessRule("mine", frozenset({PUBLISH}))
    seen: list[int] = []

    def edit(rules: AccessRules) -> AccessRules:
        seen.append(len(rules))
        if len(seen) == 1:
            record.change(lambda rules: rules.granted(other))
        return rules.granted(mine)

    assert record.read() is None
    changed = record.change(edit)
    assert set(changed) == {mine, other}
    assert seen == [0, 1]
    found = record.read()
    assert found == changed
    assert found is not None
    assert found.revision == changed.revision
    unchanged = record.change(lambda rules: rules.granted(mine))
    assert unchanged.revision == changed.revision, "nothing was written"


def test_a_change_gives_up_when_others_change_the_record_again_and_again(
    coordination: MemoryCoordination,
) -> None:
    record = coordination.access_rules
    numbers = itertools.count()

    def edit(rules: AccessRules) -> AccessRules:
        other = AccessRule(f"p{next(numbers)}", frozenset({MOVE}))
        record.change(lambda rules: rules.granted(other))
        return rules.granted(AccessRule("mine", frozenset({PUBLISH})))

    with pytest.raises(BadVersionError, match="keep changing"):
        record.change(edit)


def test_rules_that_are_larger_than_a_record_are_refused(coordination: MemoryCoordination) -> None:
    long = [
        AccessRule(f"{number:04}" + "p" * 190, frozenset({PUBLISH}), "q" * 200, "t" * 255)
        for number in range(1_000)
    ]
    with pytest.raises(InvalidInputError, match="larger than a record can be"):
        coordination.access_rules.change(lambda _: AccessRules(long))
    assert coordination.access_rules.read() is None


def test_a_record_that_cannot_be_read_is_not_overwritten(
    coordination: MemoryCoordination,
) -> None:
    record, path = coordination.access_rules, coordination.paths.access_rules
    coordination.store.records.write({path: Change(b'{"version": 2}', NEW)})
    with pytest.raises(UnsupportedFormatError):
        record.change(lambda rules: rules.granted(AccessRule("p", frozenset({MOVE}))))
    coordination.store.records.write({path: Change(GOLDEN, ANY)})
    assert record.read() == RULES
