"""Constructions that readers stumble over are found where they stand, and nothing else is."""

from __future__ import annotations

import pytest

from tests.prose import CONSTRUCTIONS, constructions, findings

KNOWN = constructions(CONSTRUCTIONS.read_text("utf-8"))
BAD, GOOD = "who" + "ever", "anyone who"


def found(name: str, source: str) -> list[tuple[int, str]]:
    return [(each.line, each.written) for each in findings(name, source, KNOWN)]


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("page.md", f"One.\n\nTwo {BAD}\ncalls.\n", [(3, BAD)]),
        ("page.md", f"```\n{BAD}\n```\n`{BAD}` is code.\n", []),
        ("a.thrift", f"/**\n * Then\n * {BAD} asks.\n */\n", [(3, BAD)]),
        ("a.thrift", "/**\n * It\n * is" + "\n * to be.\n */\n", [(3, "is" + " to be")]),
        ("a.py", f'"""Says\n\nso to {BAD} asks."""\n', [(3, BAD)]),
        ("a.py", f"x = 1\n# Not here.\n# But {BAD} is.\ny = 2  # {GOOD}\n", [(3, BAD)]),
        ("a.py", f"raise Error(f'no {{name}} for {BAD} asks')\n", [(1, BAD)]),
        ("a.py", f"{BAD} = 1  # A name is no prose.\n", []),
    ],
)
def test_a_construction_is_found_in_what_people_read(
    name: str, source: str, expected: list[tuple[int, str]]
) -> None:
    assert found(name, source) == expected


@pytest.mark.parametrize(
    "text",
    [
        "is to" + " be",
        "it is" + " to end",
        "to" + "ld",
        "a call of" + " which little is known",
        "no" + "body's",
        "that is" + " none",
        "there is" + " none",
        "for" + " who asks",
        "was" + " come to",
    ],
)
def test_what_names_forbids_is_found_with_what_to_write(text: str) -> None:
    (first, *_) = findings("page.md", text, KNOWN)
    assert first.instead


@pytest.mark.parametrize(
    "text", ["one of which", "told apart", "told to end", "if that is None", "there is work to do"]
)
def test_plain_english_is_not(text: str) -> None:
    assert found("page.md", text) == []
