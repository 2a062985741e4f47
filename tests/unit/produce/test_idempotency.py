"""From where an idempotency key is searched."""

from __future__ import annotations

import pytest

from hqueue.message_id import MessageID, id_of
from hqueue.produce.idempotency import search_for


@pytest.mark.parametrize("since", ["earliest", MessageID(1), 1_999, MessageID(5_000, 3)])
def test_a_search_begins_a_little_before_the_moment_and_never_before_the_log(
    since: MessageID | int | str,
) -> None:
    begins = search_for("key", since, 1_000, anywhere=False).since
    expected = id_of(3_000, 3) if since == MessageID(5_000, 3) else 0
    assert (type(begins), begins) == (int, expected)
