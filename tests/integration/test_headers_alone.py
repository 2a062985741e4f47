"""What can be known of a queue without reading a message: headers, ordinals, what is new."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import InvalidInputError, Message, MessageID, local
from tests.support.proxy import Proxies
from tests.support.queue_faces import QueueFace, queue_face_of

pytestmark = pytest.mark.in_memory_first

MakeQueue = Callable[..., hqueue.Queue]


def put(queue: hqueue.Queue, partition: int, *counts: int, topic: str = "t") -> list[MessageID]:
    """A batch of each of these sizes; the first ID of each."""
    return [
        queue.put([Message(topic, b"%d" % n) for n in range(count)], partition=partition)[0]
        for count in counts
    ]


def test_id_at_is_the_inverse_of_count_before(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    put(queue, 1, 3, 1, 500, 7, 1)
    ids = [m.id for m in queue.scan(partition=1)]
    for ordinal in (0, 1, 2, 3, 4, 250, 503, 504, 510, 511):
        before = ids[ordinal - 1] if ordinal else MessageID(0)
        assert before < queue.id_at(1, ordinal) <= ids[ordinal]
        assert queue.count_before(1, queue.id_at(1, ordinal)) == ordinal
    (offsets,) = queue.offsets([1])
    assert queue.id_at(1, 512) == queue.id_at(1, 10**6) == offsets.end
    assert queue.id_at(0, 0) == MessageID(0)
    with pytest.raises(InvalidInputError, match="no such partition"):
        queue.id_at(2, 0)


def test_headers_tell_topics_counts_and_sizes_of_a_segment(
    client: hqueue.Client, make_queue: MakeQueue, queue_face: QueueFace
) -> None:
    queue = queue_face(client, make_queue(1))
    firsts = put(queue, 0, 2, 3) + put(queue, 0, 1, topic="other")

    def told(**bounds: MessageID) -> list[tuple[int, int, list[str]]]:
        return [
            (header.ordinal, header.count, [entry.topic for entry in header.topics])
            for header in queue.headers(0, **bounds)
        ]

    whole = [(0, 2, ["t"]), (2, 3, ["t"]), (5, 1, ["other"])]
    assert told() == whole
    assert told(start=firsts[1]) == told(start=firsts[1].next()) == whole[1:]
    assert told(stop=firsts[2]) == whole[:2]
    assert told(start=firsts[1], stop=firsts[1].next()) == whole[1:2]
    assert told(start=firsts[2].next()) == []
    assert next(queue.headers(0)).topics[0].size > 2


def test_more_headers_than_come_with_a_request(
    client: hqueue.Client, make_queue: MakeQueue
) -> None:
    queue = make_queue(1)
    for n in range(1_203):
        queue.put(Message("t", b"%d" % n))
    for face in ("threads", "asyncio"):
        with queue_face_of(face) as queue_face:
            headers = queue_face(client, queue).headers(0)
            assert [header.ordinal for header in headers] == list(range(1_203))


def test_what_is_new_is_found_in_any_number_of_partitions(make_queue: MakeQueue) -> None:
    queue = make_queue(300, partitions_per_region=300)
    put(queue, 7, 1)
    offsets = queue.offsets()
    assert queue.appended_since(offsets) == []
    assert queue.appended_since([]) == []
    new = [0, 7, 255, 256, 299]
    for partition in new:
        put(queue, partition, 2)
    assert sorted(queue.appended_since(offsets)) == new
    assert sorted(queue.appended_since(offsets[250:])) == new[2:]


@pytest.fixture
def proxies(server: local.LocalServer) -> Iterator[Proxies]:
    with Proxies(server) as between:
        yield between


def test_what_is_new_in_many_partitions_is_one_small_request(
    make_queue: MakeQueue, proxies: Proxies
) -> None:
    written = make_queue(40)
    with hqueue.connect(proxies.settings()) as client:
        queue = client.queue(written.name)
        put(written, 3, 5)
        offsets = queue.offsets()
        assert queue.appended_since(offsets) == []
        put(written, 3, 1)
        written.put(Message("t", bytes(200_000)), partition=17)
        proxies.reset()
        assert sorted(queue.appended_since(offsets)) == [3, 17]
        assert sum(sum(proxy.calls.values()) for proxy in proxies) == 1
        assert proxies.answer_bytes < 10_000
