"""The command lines that README and the pages show: each command and option exists."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from hqueue.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|(?<=\$ )|(?<=\| )|(?<=&& ))hqueue ")
ENDS_A_COMMAND = {"|", "||", "&&", ";", "&", ">", ">>", "<"}
ARE_NONE = {"--help", "-h"}
"""What every command takes by itself."""


def command_lines(text: str) -> Iterator[list[str]]:
    """The words behind each `hqueue` in the blocks of a page, up to a pipe or a redirection."""
    for block in FENCED.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            for begun in COMMAND.split(line)[1:]:
                words = shlex.split(begun, comments=True)
                yield list(itertools.takewhile(lambda word: word not in ENDS_A_COMMAND, words))


def wrong_with(words: list[str]) -> str | None:
    """What of a command line there is not; None if all of it exists."""
    command = typer.main.get_command(app)
    context = command.make_context("hqueue", [], resilient_parsing=True)
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    for position, word in enumerate(words):
        if word.startswith("-") or not hasattr(command, "get_command"):
            break  # What follows are options and arguments.
        found = command.get_command(context, word)
        if found is None:
            return f"no command {' '.join(words[: position + 1])}"
        command = found
        known |= {
            option for each in command.params for option in (*each.opts, *each.secondary_opts)
        }
    options = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    unknown = options - known - ARE_NONE
    return f"no option {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_that_a_page_shows_exist(page: Path) -> None:
    wrong = {
        " ".join(words): reason
        for words in command_lines(page.read_text(encoding="utf-8"))
        if (reason := wrong_with(words))
    }
    assert not wrong


def test_commands_and_options_that_are_none_are_found() -> None:
    page = "```\n$ hqueue queues create e  # no\nhqueue put e --nowhere 1 | hqueue scan e > f\n```"
    lines = list(command_lines(page))
    assert lines == [["queues", "create", "e"], ["put", "e", "--nowhere", "1"], ["scan", "e"]]
    assert [wrong_with(words) for words in lines] == [
        "no command queues", "no option --nowhere", None,
    ]  # fmt: skip
