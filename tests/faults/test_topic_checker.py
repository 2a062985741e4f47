"""The checker of topics catches a planted fault of each kind, and lets a right history pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .topic_checker import LATE_S, TOPIC_KINDS, check_topics
from .topic_history import (
    Attached,
    Cursor,
    Given,
    Publish,
    TopicHistory,
    TopicRecorder,
    load_topics,
    token_of,
)


def given(ids: range, at_s: float, *, done: bool = True) -> Given:
    return Given("s-1", "s", "t", [(id_, f"m{id_}") for id_ in ids], done, at_s)


def right_history() -> TopicHistory:
    """One topic. A publisher has published twice, one of which nobody knows; one that counts up was
    killed, and another went on with what it had left. A subscriber wanted some again, and came to
    another hub in between.
    """
    return TopicHistory(
        [
            Publish("plain-1", 0, "t", ["m1", "m2"], None, "ok", [1, 2], 0.1, 0.2),
            Publish("plain-1", 1, "t", ["m3"], began_s=0.3),
            Publish("plain-1", 2, "t", ["x"], None, "fail", began_s=0.4),
            Publish("plain-1", 3, "t", ["m6"], None, "ok", [6], 0.7, 0.8),
            Publish("counted-2", 0, "t", ["m4", "m5"], 0, began_s=0.5),
            Publish("counted-3", 0, "t", ["m5", "m7"], 1, "ok", [7], 0.9, 1.0),
        ],
        [
            Attached("s-1", "s", "t", 0, 1.0, 1.1),
            Attached("s-1", "s", "t", 3, 20.0, 20.1),
        ],
        [
            given(range(1, 4), 2.0),
            given(range(4, 6), 3.0, done=False),
            given(range(4, 6), 4.0),
            given(range(4, 8), 21.0),
        ],
        [Cursor("s", "t", 0, 1.05), Cursor("s", "t", 3, 3.0), Cursor("s", "t", 5, 30.0)],
        {"t": [(id_, f"m{id_}") for id_ in range(1, 8)]},
    )


def kinds(history: TopicHistory) -> set[str]:
    return {violation.kind for violation in check_topics(history)}


def test_a_right_history_passes() -> None:
    assert check_topics(right_history()) == []


def lose_a_message(history: TopicHistory) -> None:
    del history.final["t"][5]
    history.given[-1] = given(range(4, 6), 21.0)
    history.given.append(given(range(7, 8), 22.0))


def store_it_elsewhere(history: TopicHistory) -> None:
    history.publishes[3].ids = [5]


def store_what_was_refused(history: TopicHistory) -> None:
    history.final["t"].append((8, "x"))


def store_what_nobody_published(history: TopicHistory) -> None:
    history.final["t"].append((8, "m8"))


def store_a_message_twice(history: TopicHistory) -> None:
    history.final["t"].append((8, "m6"))


def leave_a_number_out(history: TopicHistory) -> None:
    history.publishes[5].first = 2


def swap_numbers(history: TopicHistory) -> None:
    final = history.final["t"]
    final[3], final[4] = (4, "m5"), (5, "m4")


def let_ids_fall(history: TopicHistory) -> None:
    history.final["t"][6] = (5, "m7")


def swap_publishes(history: TopicHistory) -> None:
    history.publishes[0], history.publishes[3] = history.publishes[3], history.publishes[0]


def publish_later_what_lies_before(history: TopicHistory) -> None:
    history.publishes[4].began_s = 0.85


def find_something(history: TopicHistory) -> None:
    history.findings.append("a range is open that is not the last one")


def give_what_is_not_there(history: TopicHistory) -> None:
    history.given[-1].messages[-1] = (7, "m6")


def skip_a_message_within_a_call(history: TopicHistory) -> None:
    del history.given[-1].messages[1]


def skip_a_message_between_calls(history: TopicHistory) -> None:
    history.given[0] = given(range(1, 3), 2.0)


def skip_what_lies_behind_the_first_cursor(history: TopicHistory) -> None:
    history.given[0] = given(range(2, 4), 2.0)


def swap_messages_of_a_call(history: TopicHistory) -> None:
    history.given[0].messages.reverse()


def give_the_last_one_to_nobody(history: TopicHistory) -> None:
    history.given[-1] = given(range(4, 7), 21.0)


def begin_below_a_stored_cursor(history: TopicHistory) -> None:
    history.attached[1] = history.attached[1]._replace(consumed=2)


def give_what_was_consumed_long_ago(history: TopicHistory) -> None:
    history.given.append(given(range(3, 8), 20.1 + 2 * LATE_S))


def give_what_had_been_marked_long_ago(history: TopicHistory) -> None:
    history.given.append(given(range(5, 8), 30.0 + 2 * LATE_S))


PLANTED: list[tuple[Callable[[TopicHistory], None], str]] = [
    (lose_a_message, "unpublished"),
    (store_it_elsewhere, "unpublished"),
    (store_what_was_refused, "unasked"),
    (store_what_nobody_published, "unasked"),
    (store_a_message_twice, "republished"),
    (leave_a_number_out, "uncounted"),
    (swap_numbers, "uncounted"),
    (let_ids_fall, "misordered"),
    (swap_publishes, "misordered"),
    (publish_later_what_lies_before, "misordered"),
    (find_something, "unranged"),
    (give_what_is_not_there, "misgiven"),
    (skip_a_message_within_a_call, "skipped"),
    (skip_a_message_between_calls, "skipped"),
    (skip_what_lies_behind_the_first_cursor, "skipped"),
    (swap_messages_of_a_call, "skipped"),
    (give_the_last_one_to_nobody, "ungiven"),
    (begin_below_a_stored_cursor, "forgotten"),
    (give_what_was_consumed_long_ago, "regiven"),
    (give_what_had_been_marked_long_ago, "regiven"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_fault_is_caught(plant: Callable[[TopicHistory], None], kind: str) -> None:
    history = right_history()
    plant(history)
    assert kind in kinds(history)


def test_each_kind_is_planted() -> None:
    assert {kind for _, kind in PLANTED} == set(TOPIC_KINDS)


def test_what_was_written_down_is_read_again(tmp_path: Path) -> None:
    assert token_of(b"plain-1/0/0 xxx") == "plain-1/0/0"
    publisher = TopicRecorder(tmp_path / "plain-1.publisher.jsonl")
    publisher.invoke(0, "t", ["a", "b"], 0)
    publisher.complete(0, "ok", [1, 2])
    publisher.invoke(1, "t", ["c"])
    listener = TopicRecorder(tmp_path / "s-1.listener.jsonl")
    listener.attached("s", "t", 0, 1.0)
    listener.given("s", "t", [(1, "a"), (2, "b")], True)
    TopicRecorder(tmp_path / "seen.cursors.jsonl").cursor("s", "t", 2)
    history = load_topics(tmp_path, {"t": [(1, "a"), (2, "b")]}, ["f"])
    first, second = history.publishes
    assert first.ended_s is not None
    assert first.began_s <= first.ended_s <= second.began_s
    assert history.publishes == [
        Publish("plain-1", 0, "t", ["a", "b"], 0, "ok", [1, 2], first.began_s, first.ended_s),
        Publish("plain-1", 1, "t", ["c"], began_s=second.began_s),
    ]
    assert [each[:4] for each in history.attached] == [("s-1", "s", "t", 0)]
    assert [each[3:5] for each in history.given] == [([(1, "a"), (2, "b")], True)]
    assert [each[:3] for each in history.cursors] == [("s", "t", 2)]
    assert kinds(history) == {"unranged"}
