"""Programs count what they send, receive and answer, if they ask for that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest
from prometheus_client import CollectorRegistry

import hqueue
import hqueue.metrics
from hqueue import InvalidInputError, Message, ReceivedMessage, Status
from hqueue.push.listener import Listeners
from hqueue.watching.observers import OBSERVERS
from tests.support.watching import only_here

pytestmark = pytest.mark.in_memory
MakeQueue = Callable[..., hqueue.Queue]


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    with only_here():
        made = CollectorRegistry()
        hqueue.metrics.enable(made)
        yield made


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    found = registry.get_sample_value(name, labels)
    return 0.0 if found is None else found


def test_the_list_has_what_a_program_exposes_and_no_more(registry: CollectorRegistry) -> None:
    shown = {
        family.name + ("_total" if family.type == "counter" else ""): family.documentation
        for family in registry.collect()
    }
    listed = {each.exposed: each.help for each in hqueue.metrics.metrics_of(["client"])}
    assert shown == listed


def test_puts_and_producers_are_counted(registry: CollectorRegistry, make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=2)
    queue.put(Message("t", b"1"))
    queue.put([Message("t", b"2"), Message("t", b"3")], partition=0)
    with queue.producer() as producer:
        for index in range(7):
            producer.send_value("t", b"%d" % index)
    name = queue.name
    assert value(registry, "hqueue_client_sent_messages_total", queue=name) == 10
    assert value(registry, "hqueue_client_sent_bytes_total", queue=name) >= 10
    assert value(registry, "hqueue_client_send_seconds_count", queue=name) >= 3
    queue.close()
    with pytest.raises(hqueue.ClosedError):
        queue.put(Message("t", b"late"))


def test_an_append_that_fails_is_counted_by_its_outcome(
    registry: CollectorRegistry, make_queue: MakeQueue, client: hqueue.Client
) -> None:
    queue = make_queue()
    client.disable_queue(queue.name)
    try:
        with pytest.raises(hqueue.QueueStateError):
            queue.put(Message("t", b"1"))
    finally:
        client.enable_queue(queue.name)
    name = "hqueue_client_failed_sends_total"
    assert value(registry, name, queue=queue.name, outcome="not_applied") == 1


@pytest.mark.parametrize("how", ["poll", "in parts", "messages", "arrow"])
def test_consumers_count_each_message_once(
    registry: CollectorRegistry, make_queue: MakeQueue, client: hqueue.Client, how: str
) -> None:
    queue = make_queue()
    queue.put([Message("t", b"%d" % index) for index in range(9)])
    with hqueue.Consumer(queue.name, group=f"g-{how}", client=client) as consumer:
        if how == "poll":
            assert len(consumer.poll(10_000)) == 9
        elif how == "in parts":
            assert [len(consumer.poll(10_000, 4)) for _ in range(3)] == [4, 4, 1]
        elif how == "messages":
            assert len([*consumer.messages(idle_ms_max=500)]) == 9
        else:
            batches = consumer.arrow_batches(idle_ms_max=500)
            assert sum(each.num_rows for each in batches) == 9
        consumer.commit()
    labels = {"queue": queue.name, "group": f"g-{how}"}
    assert value(registry, "hqueue_client_received_messages_total", **labels) == 9
    assert value(registry, "hqueue_client_commit_seconds_count", group=f"g-{how}") >= 1


def test_share_consumers_count_their_answers(
    registry: CollectorRegistry, make_queue: MakeQueue, client: hqueue.Client
) -> None:
    queue = make_queue()
    queue.put([Message("t", b"%d" % index) for index in range(5)])
    with hqueue.ShareConsumer(
        queue.name, group="shared", client=client, auto_acknowledge=False
    ) as consumer:
        done, other, again, unprocessed, left = consumer.poll(10_000)
        assert consumer.acknowledge(done)
        assert not consumer.acknowledge(done)
        assert consumer.reject(other)
        assert consumer.release(again)
        assert consumer.release(unprocessed, counts=False)
        assert left.value == b"4"
        consumer.commit()
    labels = {"queue": queue.name, "group": "shared"}
    name = "hqueue_client_answered_messages_total"
    found = {each: value(registry, name, answer=each, **labels) for each in ("done", "reject")}
    assert found == {"done": 1, "reject": 1}
    assert value(registry, name, answer="release", **labels) == 3  # One of them at the end.
    assert value(registry, "hqueue_client_received_messages_total", **labels) == 5


def test_listeners_are_measured(registry: CollectorRegistry) -> None:
    def listener(messages: Sequence[ReceivedMessage]) -> Status:
        return Status.DONE

    messages = [ReceivedMessage("t", b"v", hqueue.MessageID(1, each), 0) for each in range(3)]
    Listeners(listener, 1_000, "reader").consume(messages)
    assert value(registry, "hqueue_client_processed_messages_total", subscriber="reader") == 3
    assert value(registry, "hqueue_client_process_seconds_count", subscriber="reader") == 1


def test_metrics_are_enabled_once_for_a_registry(registry: CollectorRegistry) -> None:
    watching = len(OBSERVERS)
    with pytest.raises(InvalidInputError, match="once"):
        hqueue.metrics.enable(registry)
    assert len(OBSERVERS) == watching


def test_without_the_extra_an_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["prometheus_client"] = None
import hqueue.metrics
assert hqueue.metrics.METRICS
try:
    hqueue.metrics.enable()
except hqueue.InvalidInputError as exc:
    print(exc)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert "'hqueue-hbase[metrics]'" in ended.stdout
