"""A scanner whose messages are taken in several ways gives each once, or an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hqueue import HQueueError, Message
from hqueue.queue import Queue
from tests.support.backends import MemoryBackend

MESSAGES = 20


@pytest.fixture
def queue() -> Iterator[Queue]:
    with MemoryBackend().connect() as client:
        queue = client.create_queue("scanned", partitions=2)
        for number in range(MESSAGES):
            queue.put(Message("t", b"%d" % number), partition=number % 2)
        yield queue


@pytest.mark.parametrize("by_id", [False, True])
def test_one_that_was_interrupted_between_messages_gives_no_later_ones_as_arrow(
    queue: Queue, by_id: bool
) -> None:
    with queue.scan(bytes_max=1, by_id=by_id) as scanner:
        assert next(iter(scanner))
        with pytest.raises(KeyboardInterrupt):
            scanner._source.throw(KeyboardInterrupt)
        with pytest.raises(HQueueError, match="the scan was interrupted"):
            next(scanner.arrow_batches())


@pytest.mark.parametrize("by_id", [False, True])
def test_one_that_came_to_its_end_stays_there_in_whichever_way_it_is_asked_again(
    queue: Queue, by_id: bool
) -> None:
    with queue.scan(by_id=by_id) as scanner:
        assert len(list(scanner)) == MESSAGES
        assert not list(scanner.arrow_batches())
        assert scanner.next() is None
        assert not list(scanner)
