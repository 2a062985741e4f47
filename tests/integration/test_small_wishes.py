"""What saves users a few lines: existing queues, chosen partitions, times as texts, and so on."""

from __future__ import annotations

import datetime
import os
import signal
import threading
from collections.abc import Callable, Sequence

import pytest

import hqueue
from hqueue import Message, ReceivedMessage, Scan, Subscription
from tests.support.queue_faces import QueueFace
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_memory

MakeQueue = Callable[..., hqueue.Queue]


def values(scanner: hqueue.Scanner) -> list[bytes]:
    with scanner:
        return [message.value for message in scanner]


@pytest.mark.in_memory_first
def test_a_queue_that_may_exist_is_opened_as_it_is_if_it_has_as_many_partitions(
    client: hqueue.Client, queue_name: str
) -> None:
    assert not client.queue_exists(queue_name)
    client.create_queue(queue_name, partitions=2, ttl="1d", exist_ok=True)
    assert client.queue_exists(queue_name)
    again = client.create_queue(queue_name, partitions=2, ttl="2d", exist_ok=True)
    assert again.describe().ttl_seconds == 86_400
    with pytest.raises(hqueue.QueueExistsError, match="number of partitions"):
        client.create_queue(queue_name, partitions=3, exist_ok=True)
    with pytest.raises(hqueue.QueueExistsError):
        client.create_queue(queue_name, partitions=2)
    with pytest.raises(hqueue.errors.QueueEnabledError):
        client.delete_queue(queue_name)
    client.delete_queue(queue_name, force=True)
    assert not client.queue_exists(queue_name)


def test_some_partitions_are_scanned_and_so_many_messages(make_queue: MakeQueue) -> None:
    queue = make_queue(3)
    for partition in range(3):
        queue.put([Message("t", b"%d" % partition)] * 3, partition=partition)
    assert sorted(values(queue.scan(partitions=[2, 0]))) == [b"0"] * 3 + [b"2"] * 3
    for limit in (0, 1, 4, 9, 10):
        assert len(values(queue.scan(limit=limit))) == min(limit, 9)
        assert len(values(queue.scan(limit=limit, merge_sorted=True))) == min(limit, 9)
        with queue.scan(limit=limit) as scanner:
            assert sum(batch.num_rows for batch in scanner.arrow_batches()) == min(limit, 9)


def test_a_time_is_a_text_or_a_timedelta_wherever_one_goes(make_queue: MakeQueue) -> None:
    queue = make_queue(1)
    written = queue.put(Message("t", b"v"), partition=0)
    before = (written.datetime - datetime.timedelta(minutes=1)).isoformat()
    hour = datetime.timedelta(hours=1)
    for number, start in enumerate(("earliest", before, "1h ago", hour, str(written))):
        assert values(queue.scan(start=start)) == [b"v"]
        assert [header.count for header in queue.headers(0, start)] == [1]
        assert queue.topics(start) == ["t"]
        assert Subscription("s", start=start).start in ("earliest", Scan(start).start) or number > 1
    assert values(queue.scan(stop=before)) == []
    assert Scan(start=datetime.timedelta.max).start == 0
    for wrong in ("soon", datetime.timedelta(hours=-1)):
        with pytest.raises(hqueue.InvalidInputError):
            queue.scan(start=wrong)


@pytest.mark.in_memory_first
def test_the_topics_of_a_queue_are_listed_up_to_a_bound_and_without_the_systems_own(
    client: hqueue.Client, make_queue: MakeQueue, queue_face: QueueFace
) -> None:
    queue = queue_face(client, make_queue(2))
    assert queue.topics() == []
    queue.put([Message(topic, b"") for topic in "cab"], partition=0)
    last = queue.put(Message("d", b""), partition=1)
    message = ReceivedMessage("a", b"", last, 1)
    queue.dead_letters.put([hqueue.DeadLetter(message, "s", "why", 1)])
    assert queue.topics() == ["a", "b", "c", "d"]
    assert len(queue.topics(topics_max=2)) == 2
    assert queue.topics(hqueue.MessageID(last.timestamp + 1)) == []


def test_what_a_generator_gives_is_put_as_one_batch(make_queue: MakeQueue) -> None:
    queue = make_queue(2)
    ids = queue.put((Message("t", b"%d" % n) for n in range(3)), partition=1)
    assert len(ids) == 3
    queue.put(Message("t", b"", b"k") for _ in range(2))
    with queue.producer() as producer:
        producer.send_batch(Message("t", b"") for _ in range(4)).result()
    assert sum(offsets.end_ordinal for offsets in queue.offsets()) == 9
    with pytest.raises(hqueue.InvalidInputError):
        queue.put(iter(()))
    with pytest.raises(hqueue.InvalidInputError):
        queue.put(Message("t", b"") for _ in iter(int, 1))


def test_a_message_has_its_time_and_its_headers_by_name(make_queue: MakeQueue) -> None:
    queue = make_queue(1)
    headers = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    queue.put(Message("t", b"", headers=headers), partition=0)
    (message,) = queue.scan()
    assert message.datetime == message.id.datetime
    assert message.datetime.tzinfo is datetime.timezone.utc
    assert [message.header(name) for name in "abc"] == [b"3", b"2", None]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_subscriber_that_runs_ends_in_order_on_a_signal(
    make_queue: MakeQueue, client: hqueue.Client, number: signal.Signals
) -> None:
    queue = make_queue(1)

    def ignore(messages: Sequence[ReceivedMessage]) -> None:
        """Never called: no worker runs."""

    subscriber = queue.subscriber(Subscription("s"), ignore, host="127.0.0.1")

    def end() -> None:
        wait_for(
            lambda: any(each.presence for each in client.list_subscribers(queue.name)),
            "it is connected",
        )
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    ending = threading.Thread(target=end)
    ending.start()
    if number is signal.SIGINT:
        with pytest.raises(KeyboardInterrupt):
            subscriber.run()
    else:
        subscriber.run()
    ending.join()
    assert signal.getsignal(number) is before
    assert not any(each.presence for each in client.list_subscribers(queue.name))
