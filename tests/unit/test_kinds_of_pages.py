"""README and the site's first page list the pages of each kind that the site's navigation has."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = ("Start", "How-to", "Reference", "Explanation")


def pages_of(text: str, heading: str, page: str) -> dict[str, set[str]]:
    """By kind, the pages below its heading. Each kind's part ends at the next heading's line."""
    found: dict[str, set[str]] = {}
    kind = ""
    for line in text.splitlines():
        if match := re.match(heading, line):
            kind = match[1]
        elif kind in KINDS:
            found.setdefault(kind, set()).update(re.findall(page, line))
    return found


def in_the_navigation() -> dict[str, set[str]]:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    return pages_of(navigation.split("\n\n")[0], r"  - (\S+):$", r": ([\w-]+\.md)$")


def test_the_navigation_has_each_page_under_one_kind() -> None:
    kinds = in_the_navigation()
    assert tuple(kinds) == KINDS
    pages = sorted(page for each in kinds.values() for page in each)
    assert pages == sorted({*(path.name for path in (ROOT / "docs").glob("*.md"))} - {"index.md"})


def test_readme_lists_the_pages_of_each_kind() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = pages_of(readme, r"#{2,3} (\S+)$", r"\]\(docs/([\w-]+\.md)\)")
    assert found == in_the_navigation()


def test_the_first_page_lists_the_pages_of_each_kind() -> None:
    first = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert pages_of(first, r"## (\S+)$", r"\]\(([\w-]+\.md)\)") == in_the_navigation()
