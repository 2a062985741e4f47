"""Whether a round is in an Iceberg table, by what its snapshots say."""

from __future__ import annotations

import pytest

from pyspark_hqueue.jobs.snapshots import Snapshot, Snapshots, round_tag

STREAM = "5b1f"
OTHER = "5b1f0"


def chain(*tags: str | None, first: int = 1, parent: int | None = None) -> list[Snapshot]:
    """Snapshots that follow one another, each with a tag."""
    made = []
    for number, tag in enumerate(tags, first):
        made.append(Snapshot(number, parent, tag))
        parent = number
    return made


def of(*numbers: int | None) -> list[str | None]:
    return [None if number is None else round_tag(STREAM, number) for number in numbers]


@pytest.mark.parametrize(
    ("tags", "number", "published"),
    [
        ([], 0, False),
        (of(None, None), 0, False),
        (of(0), 0, True),
        (of(0), 1, False),
        (of(0, 1, 2), 1, True),
        (of(0, None, 1, None, None), 1, True),
        (of(0, None, 1, None, None), 2, False),
        (of(9, 10), 10, True),
        (of(9), 10, False),
        ([round_tag(OTHER, 7)], 0, False),
        ([round_tag(OTHER, 7), *of(3), round_tag(OTHER, 8)], 3, True),
    ],
)
def test_the_newest_round_of_the_stream_decides(
    tags: list[str | None], number: int, published: bool
) -> None:
    made = chain(*tags)
    there = Snapshots(made, made[-1].id if made else None)
    assert there.published(STREAM, number) is published


def test_a_staged_snapshot_is_found_and_not_published() -> None:
    made = chain(*of(0, 1))
    staged = Snapshot(9, 2, round_tag(STREAM, 2))
    there = Snapshots([*made, staged], 2)
    assert there.published(STREAM, 2) is False
    assert there.find(round_tag(STREAM, 2)) is staged
    assert there.find(round_tag(STREAM, 3)) is None


def test_what_readers_see_is_found_before_what_was_staged() -> None:
    tag = round_tag(STREAM, 0)
    staged, published = Snapshot(1, None, tag), Snapshot(3, 2, tag)
    there = Snapshots([staged, Snapshot(2, None, None), published], 3)
    assert there.find(tag) is published
    assert there.published(STREAM, 0) is True


def test_a_table_that_was_rolled_back_no_longer_has_the_round() -> None:
    there = Snapshots(chain(*of(0, 1, 2)), 2)
    assert there.published(STREAM, 1) is True
    assert there.published(STREAM, 2) is False


def test_expired_snapshots_leave_it_open_unless_a_later_one_decides() -> None:
    kept = chain(None, None, first=7, parent=6)
    assert Snapshots(kept, 8).published(STREAM, 0) is None
    kept = chain(*of(4, None), first=7, parent=6)
    assert Snapshots(kept, 8).published(STREAM, 4) is True
    assert Snapshots(kept, 8).published(STREAM, 5) is False
    assert Snapshots([], 8).published(STREAM, 0) is None
    assert Snapshots([], 8).find(round_tag(STREAM, 0)) is None
