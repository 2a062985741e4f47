"""What a caller can change after it was checked: a put writes what was checked, or nothing; and
whatever is acknowledged can be read.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from hqueue import InvalidInputError, Message, Messages, Queue
from hqueue.format.cells import encode_values
from tests.support.backends import MemoryBackend


@pytest.fixture
def queue() -> Iterator[Queue]:
    with MemoryBackend().connect() as client:
        yield client.create_queue("q", partitions=2)


def read(queue: Queue) -> list[tuple[str, bytes, bytes | None, Any]]:
    return [(each.topic, each.value, each.key, each.headers) for each in queue.scan()]


CHANGES: dict[str, Callable[[Any], object]] = {
    "a value more": lambda m: m.values.append(b"3"),
    "a key more": lambda m: m.keys.append(b"3"),
    "a key less": lambda m: m.keys.pop(),
    "headers more": lambda m: m.headers.append(()),
    "headers less": lambda m: m.headers.pop(),
    "other values": lambda m: setattr(m, "values", ["text"]),
    "other keys": lambda m: setattr(m, "keys", [b"k"]),
    "other headers": lambda m: setattr(m, "headers", [(("hqueue.number", b"1"),)] * 2),
    "another topic": lambda m: setattr(m, "topic", "hqueue.x"),
    "a value replaced": lambda m: m.values.__setitem__(0, "text"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_columns_of_messages_cannot_be_changed_after_they_were_checked(
    queue: Queue, change: str
) -> None:
    messages = Messages("a", [b"1", b"2"], [b"k", None], [[("n", b"v")], []])
    with pytest.raises((AttributeError, TypeError)):
        CHANGES[change](messages)
    queue.put(messages)
    assert read(queue) == [("a", b"1", b"k", (("n", b"v"),)), ("a", b"2", None, ())]


def test_messages_keep_nothing_of_a_caller_that_can_be_changed(queue: Queue) -> None:
    value, key, header = bytearray(b"1"), bytearray(b"k"), bytearray(b"v")
    values: list[Any] = [value, b"2"]
    keys: list[Any] = [key, None]
    headers: list[Any] = [[("n", header)], []]
    messages = Messages("a", values, keys, headers)
    one = Message("a", value, key, headers[0])
    with queue.producer(linger_ms=60_000) as producer:
        producer.send(one, partition=1)
        for changed in (value, key, header):
            changed[:] = b"changed"
        for more in (values, keys, headers, headers[0]):
            more.append(more[0])
    queue.put(messages, partition=1)
    wanted = ("a", b"1", b"k", (("n", b"v"),))
    assert read(queue) == [wanted, wanted, ("a", b"2", None, ())]


class Growing(Sequence[Message]):
    """A sequence that has one message more each time that it is gone through, as a list to which
    another thread appends.
    """

    def __init__(self, *keys: bytes) -> None:
        self.given = [Message("a", key, key, [("n", key)]) for key in keys]

    def __len__(self) -> int:
        return len(self.given)

    def __getitem__(self, index: Any) -> Any:
        return self.given[index]

    def __iter__(self) -> Iterator[Message]:
        yield from tuple(self.given)
        key = b"%d" % len(self.given)
        self.given.append(Message(key.decode(), key, key, [("n", key)]))


@pytest.mark.parametrize("way", ["put", "send_batch"])
def test_a_sequence_that_another_thread_changes_is_put_as_it_was_at_one_moment(
    queue: Queue, way: str
) -> None:
    messages = Growing(b"k", b"k")
    if way == "put":
        assert len(queue.put(messages)) == 2
    else:
        with queue.producer() as producer:
            assert len(producer.send_batch(messages).result(10)) == 2
    assert read(queue) == [("a", b"k", b"k", (("n", b"k"),))] * 2


class Lying(bytes):
    """Bytes that say another length than they have, and that they are plain."""

    def __len__(self) -> int:
        return 5

    def __bytes__(self) -> bytes:
        return self


class LyingArray(bytearray):
    """The same, that can be changed."""

    def __len__(self) -> int:
        return 5

    def __bytes__(self) -> bytes:
        return Lying(self)


@pytest.mark.parametrize("kind", [Lying, LyingArray])
def test_bytes_of_a_derived_class_are_written_as_they_lie_in_memory(
    queue: Queue, kind: type[Any]
) -> None:
    given = kind(b"0123456789")
    queue.put(Message("a", given, given, [("n", given)]), partition=0)
    queue.put(Messages("a", [given, b"z"], [given, None], [[("n", given)], []]), partition=0)
    plain = b"0123456789"
    wanted = ("a", plain, plain, (("n", plain),))
    assert read(queue) == [wanted, wanted, ("a", b"z", None, ())]


def released() -> memoryview:
    view = memoryview(b"x")
    view.release()
    return view


@pytest.mark.parametrize(
    "make",
    [
        lambda view: Message("a", view),
        lambda view: Message("a", b"", view),
        lambda view: Message("a", b"", None, [("n", view)]),
        lambda view: Messages("a", [view]),
        lambda view: Messages("a", [b""], [view]),
        lambda view: Messages("a", [b""], None, [[("n", view)]]),
    ],
)
def test_a_view_that_was_released_is_refused(make: Callable[[memoryview], object]) -> None:
    with pytest.raises(InvalidInputError, match="released"):
        make(released())


def test_views_of_any_layout_are_taken_as_their_bytes() -> None:
    numbers = array.array("I", [1, 2, 3])
    assert Message("a", memoryview(numbers)).value == numbers.tobytes()
    assert Messages("a", [memoryview(b"012345")[::2]]).values == (b"024",)


class Bad(Messages):
    """Claims keys that it has not."""

    __slots__ = ()

    @property
    def keys(self) -> tuple[bytes | None, ...]:
        return b"k", None, b"3"


def test_the_encoder_refuses_columns_of_different_lengths(queue: Queue) -> None:
    with pytest.raises(InvalidInputError, match="different lengths"):
        queue.put(Bad("a", [b"1", b"2"]))
    values = [b"1", b"2"]
    wrong: list[dict[str, Any]] = [{"keys": [b"k"]}, {"headers": [()] * 3}, {"topics": ["a"]}]
    for each in wrong:
        with pytest.raises(InvalidInputError, match="different lengths"):
            encode_values(**{"topics": "a", "values": values, **each})
    assert read(queue) == []
