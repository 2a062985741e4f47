"""What the messages hold is of the size that it says, and can be compressed or not."""

from __future__ import annotations

import zlib

import pytest

from .library import batches
from .payloads import PAYLOADS, Payload


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.name)
def test_values_have_their_size_and_text_shrinks(payload: Payload) -> None:
    values = payload.values(50)
    assert {len(value) for value in values} == {payload.size}
    whole = b"".join(values)
    assert (len(zlib.compress(whole)) < len(whole) / 2) == payload.text


def test_there_are_as_many_values_as_wanted() -> None:
    assert len(Payload(100, False, 1).values(5_000)) == 5_000


def test_batches_hold_all_values_and_not_too_many_bytes() -> None:
    values = [bytes(1_000_000)] * 5
    assert [len(batch) for batch in batches(values, 10_000)] == [2, 2, 1]
    assert [len(batch) for batch in batches([b"x"] * 5, 3)] == [3, 2]
    assert [len(batch) for batch in batches([bytes(5_000_000)], 10)] == [1]
