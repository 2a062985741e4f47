"""HQueue's Thrift API, called with Apache Thrift's library, which knows nothing but the IDL."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from thrift.transport.TTransport import TTransportException

import hqueue
from hqueue import Message, MessageID, ReceivedMessage
from tests.support.apache_thrift import ApacheClient, apache_module

from .pushing import WorkerProcess, WorkerThread

API = apache_module()
HEADERS = [("n", b"1"), ("ü", b""), ("n", b"\xff")]

Served = WorkerProcess | WorkerThread


@pytest.fixture
def served(start: Callable[..., Served]) -> Served:
    """A worker that serves nothing but the API."""
    return start(push=False, api_port=0)


@pytest.fixture
def caller(served: Served) -> Iterator[ApacheClient]:
    with ApacheClient(*served.api_address()) as connected:
        yield connected


def struct(value: bytes, topic: bytes = b"t", **more: Any) -> Any:
    return API.TMessage(topic=topic, value=value, **more)


def fields(message: Any) -> tuple[Any, ...]:
    """A message that came, as the library's has them."""
    headers = tuple((each.name.decode(), each.value) for each in message.headers or ())
    number = MessageID(message.id.timestamp, message.id.sequenceID)
    return message.topic.decode(), message.value, message.key, headers, number, message.partitionID


def drained(caller: ApacheClient, scanner: str, count: int = 1_000) -> list[Any]:
    """What comes until the end."""
    found: list[Any] = []
    while came := caller.messageScannerGetList(scanner, count):
        assert len(came) <= count
        found += came
    return found


@pytest.mark.in_memory_first
def test_what_is_put_is_what_the_library_reads_and_what_scanners_give(
    make: Callable[..., hqueue.Queue], caller: ApacheClient
) -> None:
    queue = make(3)
    headers = [API.THeader(name=name.encode(), value=value) for name, value in HEADERS]
    caller.putMessage(queue.name, struct(b"any"))
    caller.putMessage(queue.name, struct(b"keyed", key=b"k", headers=headers))
    caller.putMessages(queue.name, [struct(b"", topic="ü".encode()), struct(b"\xff\0")])
    caller.putMessageWithPid(queue.name, 2, struct(b"here", key=b""))
    read = API.TMessageID(timestamp=1, sequenceID=1)
    caller.putMessagesWithPid(
        queue.name, 1, [struct(b"%d" % n, id=read, partitionID=0) for n in range(300)]
    )
    with queue.scan() as scanner:
        messages = sorted(scanner, key=lambda message: (message.partition, message.id))
    assert {message.value for message in messages} >= {b"any", b"keyed", b"", b"\xff\0", b"here"}
    assert [m.value for m in messages if m.value.isdigit()] == [b"%d" % n for n in range(300)]
    keyed = next(message for message in messages if message.value == b"keyed")
    assert (keyed.key, keyed.headers) == (b"k", tuple(HEADERS))
    assert keyed.partition == queue.choose_partition(None, b"k")
    came = []
    for partition in range(3):
        scanner = caller.messageScannerOpen(queue.name, partition, API.TMessageScan())
        one = caller.messageScannerGet(scanner)
        came += [one] if one.id else []
        came += drained(caller, scanner, count=77)
        caller.messageScannerClose(scanner)
    assert [fields(message) for message in came] == [tuple(message)[:6] for message in messages]


@pytest.mark.in_memory_first
def test_a_put_answers_with_its_ids_and_is_there_once_by_its_idempotency_key(
    make: Callable[..., hqueue.Queue], caller: ApacheClient
) -> None:
    queue = make(3)
    before = caller.currentPosition(queue.name)
    first = caller.put(API.TPut(queueName=queue.name, messages=[struct(b"any")]))
    assert first.count == 1
    assert before.sequenceID == 0
    assert 0 <= first.firstID.timestamp - before.timestamp < 600_000
    given = API.TPut(
        queueName=queue.name,
        messages=[struct(b"1"), struct(b"2")],
        key=b"k",
        idempotencyKey=b"once",
        since=before,
    )
    answers = [caller.put(given) for _ in range(2)]
    with queue.scan(partition=queue.choose_partition(None, b"k")) as scanner:
        one, two = (message for message in scanner if message.value != b"any")
    assert (one.value, two.value) == (b"1", b"2")
    for each in answers:
        at = each.firstID
        assert (MessageID(at.timestamp, at.sequenceID), each.count) == (one.id, 2)
    given.messages = [struct(b"other")]
    with pytest.raises(API.TIdempotencyKeyError) as raised:
        caller.put(given)
    assert raised.value.condition == API.TIdempotencyCondition.REUSED
    assert (raised.value.count, raised.value.countBefore) == (1, 2)
    assert raised.value.outcome == API.TOutcome.NOT_APPLIED


@pytest.mark.in_memory_first
def test_a_scanner_gives_what_is_wanted_then_the_end_and_later_what_was_put_since(
    make: Callable[..., hqueue.Queue], caller: ApacheClient
) -> None:
    queue = make(1)
    ids = queue.put([Message("a" if n % 2 else "b", b"%d" % n) for n in range(10)])
    first, stop = (
        API.TMessageID(timestamp=ids[n].timestamp, sequenceID=ids[n].sequence) for n in (2, 7)
    )
    ranged = caller.messageScannerOpen(
        queue.name, 0, API.TMessageScan(startMessageID=first, stopMessageID=stop, topics=[b"a"])
    )
    assert [m.value for m in drained(caller, ranged)] == [b"3", b"5"]
    open_ended = caller.messageScannerOpen(queue.name, 0, API.TMessageScan(topics=[b"b"]))
    assert [m.value for m in drained(caller, open_ended, 2)] == [b"0", b"2", b"4", b"6", b"8"]
    end = caller.messageScannerGet(open_ended)
    assert (end.id, end.partitionID, end.topic, end.value) == (None, None, b"", b"")
    queue.put([Message("a", b"not this"), Message("b", b"this")])
    assert caller.messageScannerGet(open_ended).value == b"this"
    assert caller.messageScannerGet(open_ended).id is None
    assert caller.messageScannerGet(ranged).id is None


@pytest.mark.in_memory_first
def test_a_scanner_is_its_ids_and_not_a_connections(
    make: Callable[..., hqueue.Queue], served: Served, caller: ApacheClient
) -> None:
    queue = make(1)
    queue.put([Message("t", b"1"), Message("t", b"2")])
    scanner = caller.messageScannerOpen(queue.name, 0, API.TMessageScan())
    assert len(scanner) == 32
    assert caller.messageScannerGet(scanner).value == b"1"
    with ApacheClient(*served.api_address()) as other:
        assert other.messageScannerGet(scanner).value == b"2"
        other.messageScannerClose(scanner)
    for call in (caller.messageScannerGet, caller.messageScannerClose):
        with pytest.raises(API.TScannerNotFound):
            call(scanner)


@pytest.mark.in_memory_first
def test_what_makes_no_sense_is_refused_with_the_error_that_the_idl_declares(
    make: Callable[..., hqueue.Queue], caller: ApacheClient
) -> None:
    queue = make(2)
    name, scan = queue.name, API.TMessageScan()
    scanner = caller.messageScannerOpen(name, 0, scan)
    wrong_id = API.TMessageScan(startMessageID=API.TMessageID(timestamp=-1, sequenceID=0))
    half_id = API.TMessageScan(stopMessageID=API.TMessageID(timestamp=1))
    keys = [struct(b"", key=b"%d" % n) for n in range(20)]
    refused = [
        ("messageScannerOpen", None, 0, scan),
        ("messageScannerOpen", name, None, scan),
        ("messageScannerOpen", name, 2, scan),
        ("messageScannerOpen", name, -1, scan),
        ("messageScannerOpen", name, 0, None),
        ("messageScannerOpen", name, 0, wrong_id),
        ("messageScannerOpen", name, 0, half_id),
        ("messageScannerOpen", name, 0, API.TMessageScan(topics=[b"\xff"])),
        ("messageScannerOpen", "no/name", 0, scan),
        ("messageScannerGetList", scanner, 0),
        ("messageScannerGetList", scanner, -5),
        ("messageScannerGetList", scanner, None),
        ("messageScannerGet", None),
        ("messageScannerClose", None),
        ("putMessage", name, None),
        ("putMessage", None, struct(b"")),
        ("putMessage", name, struct(b"", topic=b"\xff")),
        ("putMessage", name, struct(b"", topic=b"")),
        ("putMessage", name, API.TMessage(topic=b"t")),
        ("putMessage", name, API.TMessage(value=b"v")),
        ("putMessage", name, struct(b"", headers=[API.THeader(name=b"n")])),
        ("putMessage", name, struct(b"", headers=[API.THeader(name=b"\xff", value=b"")])),
        ("putMessage", name, struct(bytes(8 * 1024 * 1024 + 1))),
        ("putMessages", name, None),
        ("putMessages", name, []),
        ("putMessages", name, keys),
        ("putMessages", name, [struct(bytes(5 * 1024 * 1024))] * 2),
        ("putMessageWithPid", name, 2, struct(b"")),
        ("putMessagesWithPid", name, -1, [struct(b"")]),
        ("put", None),
        ("put", API.TPut()),
        ("put", API.TPut(queueName=name)),
        ("put", API.TPut(queueName=name, messages=[])),
        ("put", API.TPut(messages=[struct(b"")])),
        ("put", API.TPut(queueName=name, messages=[struct(b"")], partitionID=2)),
        ("put", API.TPut(queueName=name, messages=[struct(b"")], partitionID=0, key=b"k")),
        ("put", API.TPut(queueName=name, messages=[struct(b"")], idempotencyKey=b"k")),
        ("put", API.TPut(queueName=name, messages=[struct(b"")], key=b"k", idempotencyKey=b"")),
        ("put", API.TPut(queueName=name, messages=[struct(b"")], since=wrong_id.startMessageID)),
        ("currentPosition", None),
        ("getQueueLocations", None),
    ]
    for method, *given in refused:
        with pytest.raises(API.TIllegalArgument) as raised:
            caller.call(method, *given)
        assert raised.value.message, method
    with pytest.raises(API.TScannerNotFound):
        caller.messageScannerGet("0" * 32)
    with queue.scan() as nothing:
        assert list(nothing) == []


@pytest.mark.in_memory_first
def test_the_state_of_a_queue_is_told(
    make: Callable[..., hqueue.Queue], pushing: hqueue.Client, caller: ApacheClient
) -> None:
    queue = make(2)
    queue.put(Message("t", b"v"), partition=0)
    for call in (
        lambda: caller.putMessage("no-such-queue", struct(b"")),
        lambda: caller.messageScannerOpen("no-such-queue", 0, API.TMessageScan()),
        lambda: caller.currentPosition("no-such-queue"),
        lambda: caller.getQueueLocations("no-such-queue"),
    ):
        with pytest.raises(API.TQueueStateError) as raised:
            call()
        assert raised.value.condition == API.TQueueCondition.NOT_FOUND
        assert raised.value.outcome == API.TOutcome.NOT_APPLIED
    scanner = caller.messageScannerOpen(queue.name, 0, API.TMessageScan())
    locations = caller.getQueueLocations(queue.name)
    assert [
        hqueue.PartitionLocation(each.partitionID, each.host, each.port) for each in locations
    ] == pushing.locations(queue.name)
    pushing.disable_queue(queue.name)
    for call in (
        lambda: caller.putMessage(queue.name, struct(b"")),
        lambda: caller.messageScannerGet(scanner),
    ):
        with pytest.raises(API.TQueueStateError) as raised:
            call()
        assert raised.value.condition == API.TQueueCondition.DISABLED
    pushing.enable_queue(queue.name)
    assert caller.messageScannerGet(scanner).value == b"v"


@pytest.mark.in_memory_first
def test_it_is_served_beside_push_and_ends_in_order(
    make: Callable[..., hqueue.Queue], start: Callable[..., Served]
) -> None:
    queue = make(1)
    worker = start(api_port=0, drain_ms=300_000)
    with ApacheClient(*worker.api_address()) as caller:
        answered: list[bool] = []

        def put() -> None:
            while True:
                try:
                    caller.putMessage(queue.name, struct(b"%d" % len(answered)))
                except (OSError, TTransportException):
                    return
                answered.append(True)

        putting = threading.Thread(target=put)
        putting.start()
        with queue.scan(follow=True) as scanner:
            assert isinstance(scanner.next(), ReceivedMessage)
        assert worker.terminate() == 0
        putting.join(60)
        assert not putting.is_alive()
    with queue.scan() as scanner:
        values = [message.value for message in scanner]
    # Calls under way were answered: what is in the log is what was acknowledged.
    assert values == [b"%d" % n for n in range(len(answered))]
    with (
        pytest.raises(ConnectionRefusedError),
        socket.create_connection(caller.address, timeout=10),
    ):
        pass
