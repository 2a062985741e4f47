"""Chooses which of a partition's waiting publishes go into one append."""

from __future__ import annotations

import collections

from hqueue import HQueueError
from hqueue.settings.limits import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    HEADER_ROOM_BYTES,
    TOPICS_PER_BATCH_MAX,
)
from hqueue_workers.hub.writing.owned_topic import (
    FencedTopicError,
    OwnedTopic,
    Publish,
    UnknownSequenceNumbersError,
)
from hqueue_workers.hub.writing.sequence_numbers import LastMessage, SequenceNumbers

__all__ = ["fenced", "gather"]

TOGETHER_BYTES_MAX = BATCH_BYTES_MAX // 2
"""Of several publishes. One alone may be as large as a batch."""

MESSAGE_BYTES = 32
"""What a message has in a batch beside its own bytes, at most."""


def gather(
    batch: list[Publish], waiting: collections.deque[Publish], sequence_numbers: SequenceNumbers
) -> list[tuple[Publish, HQueueError | LastMessage]]:
    """Remove fenced publishes from a batch, and add waiting ones to it, in their order and as many
    as fit. Call it when everything in the log is known.

    Returns:
        The publishes that append nothing, each with its result: an error, or the publisher's last
            message if the topic has all messages already.
    """
    ended: list[tuple[Publish, HQueueError | LastMessage]] = [
        (each, fenced(each.owned)) for each in batch if each.owned.fenced
    ]
    batch[:] = [each for each in batch if not each.owned.fenced]
    size = sum(_bytes(each) for each in batch)
    messages = sum(len(each.messages) for each in batch)
    topics = {each.owned.name for each in batch}
    while waiting:
        following = waiting[0]
        outcome = _judged(following, sequence_numbers)
        if outcome is not None:
            ended.append((following, outcome))
        else:
            if batch and (
                size + _bytes(following) > TOGETHER_BYTES_MAX
                or messages + len(following.messages) > BATCH_MESSAGES_MAX
                or len(topics | {following.owned.name}) > TOPICS_PER_BATCH_MAX
                or any(_overlap(each, following) for each in batch)
            ):
                break
            size, messages = size + _bytes(following), messages + len(following.messages)
            topics.add(following.owned.name)
            batch.append(following)
        waiting.popleft()
    return ended


def fenced(owned: OwnedTopic) -> FencedTopicError:
    """The error of a publish to a topic that another hub owns."""
    return FencedTopicError(
        "another hub owns the topic", topic=owned.name, partition=owned.partition
    )


def _judged(
    publish: Publish, sequence_numbers: SequenceNumbers
) -> HQueueError | LastMessage | None:
    """The result of a publish that appends nothing; None for any other."""
    if publish.owned.fenced:
        return fenced(publish.owned)
    try:
        last_message = sequence_numbers.leave_out(publish)
    except UnknownSequenceNumbersError as exc:
        return exc
    return None if publish.messages else last_message


def _bytes(publish: Publish) -> int:
    headers = sum([len(each.headers) for each in publish.messages])
    return publish.size + MESSAGE_BYTES * len(publish.messages) + HEADER_ROOM_BYTES * headers


def _overlap(before: Publish, after: Publish) -> bool:
    """Whether a publish can't be judged before the result of another is known."""
    one, other = before.sequence, after.sequence
    return (
        one is not None
        and other is not None
        and before.owned is after.owned
        and one.publisher == other.publisher
        and other.first + after.duplicates <= before.last_sequence_number
    )
