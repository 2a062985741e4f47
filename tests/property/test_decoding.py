"""A batch as messages and as Arrow: the same, whatever was asked of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hqueue.consume.arrow import record_batch
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
