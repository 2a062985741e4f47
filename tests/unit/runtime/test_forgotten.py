"""Who is closed is watched until that is done: a close that is refused, or interrupted, changes
nothing about what becomes of an object that is forgotten afterwards.
"""

from __future__ import annotations

import ast
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from hqueue import InvalidInputError, Message, MessageID
from hqueue.message_id import MessageIDs
from hqueue.queue import Queue
from hqueue.topics.producer import HubProducer
from tests.support.backends import MemoryBackend
from tests.support.waiting import wait_for
from tests.unit.runtime.test_locks import FILES

OPTIONS = {"linger_ms": 60_000, "batch_messages_max": 2}
SOON_S = 30.0


def _to_a_queue(queue: Queue) -> Any:
    return queue.producer(**OPTIONS)


def _to_a_topic(queue: Queue) -> Any:
    def publish(topic: str, messages: list[Message]) -> MessageIDs:
        ids = queue.put(messages, partition=0)
        return MessageIDs(int(ids[0]), len(ids))

    return HubProducer(publish, **OPTIONS)


@pytest.mark.parametrize("make", [_to_a_queue, _to_a_topic])
def test_a_producer_that_a_callback_can_t_close_writes_what_it_holds_when_it_is_forgotten(
    make: Callable[[Queue], Any],
) -> None:
    with MemoryBackend().connect() as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        queue = client.create_queue("forgotten", partitions=1)
        producers = [make(queue)]
        refused: list[str] = []

        def close(message_id: MessageID | None, error: BaseException | None) -> None:
            producers[0].send(Message("t", b"sent by the callback"))
            for timeout_s in (None, SOON_S):
                try:
                    producers[0].close(timeout_s)
                except InvalidInputError as exc:
                    refused.append(str(exc))

        producers[0].send(Message("t", b"sent"), callback=close)
        producers[0].send(Message("t", b"fills the batch"))
        wait_for(lambda: len(refused) == 2, "the callback was called")
        with pytest.raises(InvalidInputError, match="timeout_s"):
            producers[0].close("soon")
        producers.clear()
        gc.collect()
        wait_for(lambda: len(list(queue.scan())) == 3, "what it held is written")
    assert ["a producer was never closed" in str(each.message) for each in caught] == [True]


def _unwatching(tree: ast.AST) -> list[tuple[list[ast.stmt], int]]:
    """The blocks in which an object is watched no more, and where in them."""
    return [
        (block, place)
        for node in ast.walk(tree)
        for block in (getattr(node, field, None) for field in ("body", "orelse", "finalbody"))
        if isinstance(block, list)
        for place, statement in enumerate(block)
        if isinstance(statement, ast.Expr) and "_watched.closed()" in ast.unparse(statement)
    ]


def test_nothing_that_can_fail_follows_where_an_object_is_watched_no_more() -> None:
    found = [(name, *each) for name, path in FILES.items() for each in _unwatching(_tree(path))]
    assert len(found) >= 8
    for name, block, place in found:
        later = [each for statement in block[place + 1 :] for each in ast.walk(statement)]
        assert not [each for each in later if isinstance(each, ast.Call)], name


def _tree(path: Any) -> ast.AST:
    return ast.parse(path.read_text())
