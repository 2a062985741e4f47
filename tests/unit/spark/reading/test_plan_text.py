"""How a located read shows itself in plans."""

from __future__ import annotations

from hqueue import MessageID
from pyspark_hqueue.reading.plan import Range
from pyspark_hqueue.reading.plan_text import plan_text
from pyspark_hqueue.reading.read_options import ReadOptions


def options(**given: str) -> ReadOptions:
    return ReadOptions.of({"queue": "events", **given}, "batch")


def range_of(partition: int) -> Range:
    return Range(partition, int(MessageID(5)), int(MessageID(7, 2)), 0, 3, True)


def test_a_read_shows_its_topics_ranges_and_columns() -> None:
    assert plan_text(options(subscribe="b,a"), [range_of(0), range_of(3)], ["key", "value"]) == (
        "hqueue(queue=events, topics=[a, b], ranges=[0: 5-0 to 7-2, 3: 5-0 to 7-2], "
        "columns=[key, value])"
    )
    assert plan_text(options(), [], ["id"]) == "hqueue(queue=events, ranges=[], columns=[id])"
    assert plan_text(options(subscribe="a", topicRanges="true"), [range_of(1)], ["id"]) == (
        "hqueue(queue=events, topics=[a], topicRanges=[1: 5-0 to 7-2], columns=[id])"
    )
    assert "topics=/a.*/," in plan_text(options(subscribePattern="a.*"), [], ["id"])


def test_of_many_topics_and_ranges_the_first_are_shown() -> None:
    topics = ",".join(f"t{n:02}" for n in range(12))
    text = plan_text(options(subscribe=topics), list(map(range_of, range(1_000))), ["id"])
    assert "t09, 2 more]" in text
    assert "9: 5-0 to 7-2, 990 more]" in text
