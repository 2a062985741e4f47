"""Puts dead letters, redrives and deletions into the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from hqueue.dead_letters.wrapping import DeadLetter
from hqueue.errors import InvalidInputError
from hqueue.format.cells import encode_message
from hqueue.handle import QueueLog
from hqueue.message import Message
from hqueue.runtime.steps import Wait, Work
from hqueue.settings.kinds import check_kind
from hqueue.settings.limits import BATCH_BYTES_MAX, HEADER_ROOM_BYTES

__all__ = ["letters_of", "put_each", "put_in"]

_PUT_BYTES_MAX = BATCH_BYTES_MAX // 2
_PUT_MESSAGES_MAX = 1_000


def put_each(
    put: Callable[[list[Message], int], Wait], wrapped: Iterable[tuple[DeadLetter, Message]]
) -> Work[Any, int]:
    """Put messages into the partitions of their dead letters, in batches. Returns how many were
    put.

    An original that is left in the log counts with its size there, because a reader of a batch of
    redrives holds all originals in memory.
    """
    count = size = 0
    open_for: int | None = None
    batch: list[Message] = []

    def flush() -> Work[Any, None]:
        nonlocal size
        if batch:
            assert open_for is not None
            yield put(list(batch), open_for)
        batch.clear()
        size = 0

    for letter, message in wrapped:
        held = max(message, letter.message, key=lambda each: encode_message(each).size)
        bytes_ = encode_message(held).size + HEADER_ROOM_BYTES * len(held.headers)
        full = size + bytes_ > _PUT_BYTES_MAX or len(batch) >= _PUT_MESSAGES_MAX
        if full or letter.message.partition != open_for:
            yield from flush()
        open_for = letter.message.partition
        batch.append(message)
        size += bytes_
        count += 1
    yield from flush()
    return count


def put_in(log: QueueLog, messages: list[Message], partition: int) -> Wait:
    """Asks to put messages under reserved topics into a partition."""
    return Wait(
        partial(log.appender.put_system, messages, partition),
        partial(log.loop_appender.put_system, messages, partition),
    )


def letters_of(letters: Iterable[DeadLetter], queue: str | None) -> Iterator[DeadLetter]:
    """Check each of these when it is its turn, and give it.

    Args:
        letters: the dead letters.
        queue: the queue that they must come from; any if None.

    Raises:
        InvalidInputError: the argument is not iterable, has something that is not a dead letter, or
            has a dead letter that was read from another queue.
    """
    check_kind(letters, Iterable, "letters")
    for each in letters:
        letter = check_kind(each, DeadLetter, "letters")
        if queue is not None and letter.queue not in (None, queue):
            raise InvalidInputError(
                "this dead letter lies in another queue: use that queue's dead_letters",
                queue=queue,
                lies_in=letter.queue,
                id=letter.id,
            )
        yield letter
