"""What a scan wants, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from hqueue import InvalidInputError, MessageID, Scan
from hqueue.settings.limits import MESSAGE_ID_MAX


def test_it_wants_everything_unless_it_is_told() -> None:
    scan = Scan()
    assert (scan.start, scan.stop, scan.topics) == (0, MESSAGE_ID_MAX + 1, set())


def test_topics_are_given_or_added() -> None:
    scan = Scan(MessageID(3), 7, ("a", "b"))
    assert (scan.start, scan.stop) == (MessageID(3), MessageID(7))
    assert scan.add_topic("c") is scan
    assert scan.topics == {"a", "b", "c"}


@pytest.mark.parametrize("topics", ["a", b"a", [""], [b"a"], ["x" * 256]])
def test_topics_that_can_be_none_are_refused(topics: Any) -> None:
    with pytest.raises(InvalidInputError):
        Scan(topics=topics)


def test_a_stop_before_the_start_is_refused() -> None:
    assert Scan(5, 5).stop == MessageID(5)
    with pytest.raises(InvalidInputError):
        Scan(5, 4)
