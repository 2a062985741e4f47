"""Access rules on the command line."""

from __future__ import annotations

import json
import uuid

import pytest

from tests.acceptance.commands import Run

pytestmark = pytest.mark.usefixtures("server")


def test_rules_are_granted_listed_checked_and_revoked(run: Run) -> None:
    who = f"loader-{uuid.uuid4().hex[:8]}"

    def rules() -> list[dict[str, object]]:
        listed = map(json.loads, run("access", "list", "--json").lines)
        return [rule for rule in listed if rule["principal"] == f"{who}*"]

    granted = {"principal": f"{who}*", "queue": "events", "topic": "clicks*", "name": None}
    scope = f"{who}*", "events", "--topic", "clicks*"

    def change(verb: str, operations: str) -> int:
        return run("access", verb, scope[0], operations, *scope[1:]).code

    assert change("grant", "publish") == 0
    assert change("grant", "create, publish") == 0
    assert rules() == [{**granted, "operations": ["create", "publish"]}]
    asked = "access", "check", f"{who}-7", "publish", "events"
    allowed = run(*asked, "--topic", "clicks")
    assert allowed.lines == [f"{who}*\tcreate,publish\tevents\tclicks*\t-"]
    named = run("access", "grant", f"{who}*", "all", "events", "--name", "batch-*")
    assert named.code == 0, named.err
    by_name = run(*asked, "--topic", "clicks", "--name", "batch-3", "--json")
    assert json.loads(by_name.out)["name"] == "batch-*"
    for refused in (
        ("--topic", "clicks", "--name", "other"),
        ("--topic", "*", "--name", "other"),
    ):
        ended = run(*asked, *refused)
        assert (ended.code, ended.out) == (1, b"" if isinstance(ended.out, bytes) else "")
        assert "No rule allows it" in ended.err
    assert change("revoke", "create") == 0
    assert {**granted, "operations": ["publish"]} in rules()
    assert change("revoke", "publish") == 0
    again = run("access", "revoke", scope[0], "publish", *scope[1:])
    assert again.code == 1
    assert "No rule was granted with these arguments" in again.err
    assert run("access", "revoke", f"{who}*", "all", "events", "--name", "batch-*").code == 0
    assert rules() == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("grant", "p", "fly", "q"), "unknown operation"),
        (("grant", "p", "", "q"), "at least one operation"),
        (("grant", "a b", "publish", "q"), "the name of a subscriber"),
        (("grant", "p", "publish", "a/b"), "a queue's name"),
        (("grant", "p", "publish", "q", "--topic", ""), "1 to 255 bytes"),
        (("check", "p*", "publish", "q"), "the name of a subscriber"),
        (("check", "p", "all", "q"), "unknown operation"),
    ],
)
def test_a_rule_that_could_match_nothing_is_refused(
    run: Run, arguments: tuple[str, ...], text: str
) -> None:
    ended = run("access", *arguments)
    assert ended.code == 2
    assert text in ended.err
