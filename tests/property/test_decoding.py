"""A batch as messages and as Arrow: the same, whatever was asked of it."""

from __future__ import annotations

from itertools import groupby
from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hqueue.consume.arrow import first_of, record_batch
from hqueue.consume.decode import messages_of
from hqueue.log import Batch
from hqueue.message import Message
from tests.support.batches import bodies_lists, read


@given(bodies_lists, st.data())
def test_some_topics_of_a_batch_are_those_messages(
    given_messages: list[Message], data: st.DataObject
) -> None:
    batch = read(given_messages)
    chosen = data.draw(st.sets(st.sampled_from([e.topic for e, _ in batch.cells]), min_size=1))
    cells = tuple((entry, cell) for entry, cell in batch.cells if entry.topic in chosen)
    part = Batch(7, batch.key, batch.header, cells, batch.start, batch.stop)
    wanted = [m for m in messages_of(batch) if m.topic in chosen]
    assert messages_of(part) == wanted
    assert record_batch([part]).column("id").to_pylist() == [m.id for m in wanted]


@given(bodies_lists, st.data())
def test_what_went_in_comes_out_as_messages_and_as_arrow(
    given_messages: list[Message], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(given_messages) - 1))
    stop = data.draw(st.integers(start + 1, len(given_messages)))
    batch = read(given_messages, start, stop)
    wanted = given_messages[start:stop]
    assert [tuple(m)[:4] for m in messages_of(batch)] == [tuple(m) for m in wanted]
    for small_max in (0, len(given_messages) + 1):
        with mock.patch("hqueue.consume.arrow.SMALL_BATCH", small_max):
            columns = record_batch([batch])
        columns.validate(full=True)
        assert columns.column("key").to_pylist() == [m.key for m in wanted]
        assert columns.column("headers").to_pylist() == [
            [{"key": name, "value": value} for name, value in m.headers] or None for m in wanted
        ]


@given(st.lists(bodies_lists, min_size=1, max_size=5), st.integers(0, 200))
def test_large_batches_are_record_batches_by_themselves(
    lists: list[list[Message]], large_bytes: int
) -> None:
    batches = [read(messages) for messages in lists]
    found, left = [], batches
    while left:
        with mock.patch("hqueue.consume.arrow.LARGE_BYTES", large_bytes):
            first = first_of(left)
        found.append(record_batch(first))
        left = left[len(first) :]
    assert pa.Table.from_batches(found) == pa.Table.from_batches([record_batch(batches)])
    large = [sum(len(cell) for _, cell in b.cells) >= large_bytes for b in batches]
    assert len(found) == sum(len([*run]) if alone else 1 for alone, run in groupby(large))
