"""What watches the producers, consumers and subscribers of a process: metrics and traces, if the
program asks for them. While nothing watches, each place that reports only finds that `OBSERVERS` is
empty.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from hqueue.message import Headers, Message, ReceivedMessage
from hqueue.runtime.steps import Work
from hqueue.watching.guarded import Guarded
from hqueue.watching.observer import FIRST_MAX, End, Observer

__all__ = [
    "OBSERVERS",
    "Put",
    "Received",
    "created",
    "delivering",
    "observe",
    "processing",
    "publishing",
    "putting",
    "watched",
    "writing",
]

Result = TypeVar("Result")
ReceivedT = TypeVar("ReceivedT", bound=ReceivedMessage)

OBSERVERS: list[Guarded] = []
"""The observers of this process."""


def observe(observer: Observer) -> None:
    """Let an observer watch this process from now on. Its errors are logged."""
    OBSERVERS.append(Guarded(observer))


class Put:
    """A put that is under way.

    Args:
        messages: the messages to put.
    """

    def __init__(self, messages: Any) -> None:
        self.messages = messages
        self.ids: Any = None
        """The result of the put, which its caller sets."""


@contextlib.contextmanager
def putting(
    queue: str, messages: Any, partition: int | None = None, *, changeable: bool = True
) -> Iterator[Put]:
    """A block that puts messages. Yields the messages to put instead.

    Args:
        queue: the queue.
        messages: a message or several, in any form that a put takes. Only single messages and
            lists of them may get headers.
        partition: the partition that the caller chose; None for any.
        changeable: whether the messages may get more headers.
    """
    given: Sequence[Message] = ()
    alone = isinstance(messages, Message)
    if alone:
        given = [messages]
    elif isinstance(messages, (list, tuple)) and all(isinstance(m, Message) for m in messages):
        given = messages
    count = len(given) or _length(messages)
    ends: list[End] = []
    for each in OBSERVERS:
        changed = changeable and bool(given)
        given, end = each.put(queue, given, count, partition, changeable=changed)
        ends.append(end)
    put = Put(messages if not given else given[0] if alone else given)
    try:
        yield put
    except BaseException as exc:
        _end(ends, None, exc)
        raise
    _end(ends, put.ids, None)


def _length(messages: Any) -> int:
    if hasattr(messages, "num_rows"):
        return int(messages.num_rows)
    return len(messages) if isinstance(messages, Sequence) else 0


def writing(
    queue: str, sent: Sequence[tuple[str, bytes, Any, Any]], bodies: Any, partition: int | None
) -> contextlib.AbstractContextManager[Put]:
    """A block that writes a batch of a producer.

    Args:
        queue: the queue.
        sent: the topic, the value, the key with headers, and the callback of each message that was
            sent by itself.
        bodies: the batch, if it was sent as a whole; else None.
        partition: the partition; None for any.
    """
    first = [
        Message(topic, value, None, extra[1])
        for topic, value, extra, _ in itertools.islice(sent, FIRST_MAX)
        if extra is not None and extra[1]
    ]
    return _writing(queue, first, bodies.count if bodies is not None else len(sent), partition)


@contextlib.contextmanager
def _writing(
    queue: str, first: Sequence[Message], count: int, partition: int | None
) -> Iterator[Put]:
    ends = [each.put(queue, first, count, partition, changeable=False)[1] for each in OBSERVERS]
    put = Put(None)
    try:
        yield put
    except BaseException as exc:
        _end(ends, None, exc)
        raise
    _end(ends, put.ids, None)


def publishing(
    queue: str,
    topic: str,
    messages: Any,
    publish: Callable[[Any], Work[Any, Result]],
) -> Work[Any, Result]:
    """The work of a publish to a topic, watched. Values become messages of the topic.

    Args:
        queue, topic: where the messages go.
        messages: values or messages.
        publish: publishes them.
    """
    if isinstance(messages, (list, tuple)):
        values = bytes, bytearray, memoryview
        messages = [Message(topic, m) if isinstance(m, values) else m for m in messages]
    with putting(queue, messages) as put:
        given = put.messages
        size = sum(m.size for m in given if isinstance(m, Message))
        work = watched(publish(given), lambda each: each.append(queue, _length(given), size))
        put.ids = yield from work
        result: Result = put.ids
        return result


def _end(ends: Sequence[End], result: object, error: BaseException | None) -> None:
    for end in ends:
        end(result, error)


def created(
    queue: str, message: Message, extra: tuple[bytes | None, Headers] | None
) -> tuple[bytes | None, Headers] | None:
    """Report a message that is given to a producer. Returns its key and headers to put; None if it
    has neither.
    """
    key, headers = extra or (None, ())
    for each in OBSERVERS:
        headers = each.create(queue, headers, message.size)
    return (key, headers) if key is not None or headers else None


def watched(work: Work[Any, Result], begin: Callable[[Observer], End]) -> Work[Any, Result]:
    """The same work, with its end reported."""
    ends = [begin(each) for each in OBSERVERS]
    try:
        result = yield from work
    except BaseException as exc:
        _end(ends, None, exc)
        raise
    _end(ends, result, None)
    return result


async def delivering(
    queue: str, subscriber: str, call: Any, calling: Coroutine[Any, Any, Result]
) -> Result:
    """A call of a subscriber, watched: see `Observer.deliver`."""
    ends = [each.deliver(queue, subscriber, call) for each in OBSERVERS]
    try:
        result = await calling
    except BaseException as exc:
        _end(ends, None, exc)
        raise
    _end(ends, result, None)
    return result


def processing(
    subscriber: str, messages: Sequence[ReceivedMessage]
) -> contextlib.AbstractContextManager[object]:
    """The block in which listeners process messages."""
    return _processing(subscriber, messages) if OBSERVERS else contextlib.nullcontext()


@contextlib.contextmanager
def _processing(subscriber: str, messages: Sequence[ReceivedMessage]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for each in OBSERVERS:
            stack.enter_context(each.process(subscriber, messages))
        yield


class Received(Iterator[ReceivedT]):
    """Messages that are handed out, and reported when the last one was, or when `report` is called.

    Args:
        messages: the messages.
        queue: their queue.
        group: the consumer's group; None without a group.
    """

    def __init__(self, messages: Iterator[ReceivedT], queue: str, group: str | None) -> None:
        self._messages = messages
        self._queue = queue
        self._group = group
        self._first: list[ReceivedT] = []
        self._count = 0

    def __next__(self) -> ReceivedT:
        try:
            message = next(self._messages)
        except StopIteration:
            self.report()
            raise
        if self._count < FIRST_MAX:
            self._first.append(message)
        self._count += 1
        return message

    def report(self) -> None:
        """Report what was handed out since the last report."""
        if self._count:
            first, count = self._first, self._count
            self._first, self._count = [], 0
            for each in OBSERVERS:
                each.received(self._queue, self._group, first, count)
