"""Numbers as commands say them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hqueue.cli.progress import count_text

ROOT = Path(__file__).parents[3]
PLURALS = (
    "batches", "files", "groups", "hubs", "messages", "owners", "partitions", "problems", "queues",
    "records", "subscribers", "subscriptions", "topics", "workers",
)  # fmt: skip
NUMBERED = re.compile(rf"\}} (?:{'|'.join(PLURALS)})\b(?!/s)")


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "message", "0 messages"),
        (1, "message", "1 message"),
        (2_000, "message", "2,000 messages"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
    ],
)
def test_a_noun_is_in_the_plural_unless_there_is_one(number: int, noun: str, text: str) -> None:
    assert count_text(number, noun) == text


def test_no_command_says_a_plural_of_its_own_behind_a_number() -> None:
    rooms = [ROOT / "hqueue" / "cli", ROOT / "spark" / "pyspark_hqueue" / "jobs"]
    assert all(room.is_dir() for room in rooms)
    found = {
        f"{path.name}: {match[0]}"
        for room in rooms
        for path in room.rglob("*.py")
        for match in NUMBERED.finditer(path.read_text())
    }
    assert not found
