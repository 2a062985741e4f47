"""Whole queues by way of hubs: what is put is there, and each message comes once."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue import (
    Address,
    ClosedError,
    HubUnavailableError,
    IdempotencyKeyReusedError,
    InvalidInputError,
    Message,
    MessageID,
    MessageTooLargeError,
    Outcome,
    Queue,
    QueueNotFoundError,
)
from hqueue.consume.scanners import ScannerOptions
from hqueue.errors import QueueDisabledError
from hqueue.topics.exchanges import Exchange
from hqueue.topics.hub_scan import MESSAGES_MAX
from hqueue.topics.queue import HubQueue
from hqueue.typing import MessageIDs
from tests.support.backends import MemoryBackend
from tests.support.hub_faces import after_exchanges, both_faces
from tests.support.hubs import HubThread

ROOT = Path(__file__).parents[3]
QUEUE = "q"


class Scene:
    """Two hubs, a client of them, and one of the store."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.backend = MemoryBackend().apart(10_000)
        self.store = stack.enter_context(self.backend.connect())
        self.store.create_queue(QUEUE, partitions=3)
        self.hubs = [
            stack.enter_context(
                HubThread(stack.enter_context(self.backend.connect()), QUEUE, api_port=0)
            )
            for _ in range(2)
        ]
        self.client = stack.enter_context(
            hqueue.connect_hubs(
                [hub.address for hub in self.hubs], queue=QUEUE, operation_timeout_ms=60_000
            )
        )
        self.queue = self.client.queue()

    def end(self, api: Any) -> None:
        """End the hub that serves the API there."""
        [hub] = [hub for hub in self.hubs if hub.hub.api and hub.hub.api.address == api]
        hub.terminate()


@pytest.fixture
def scene() -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack)


def then_do(
    monkeypatch: pytest.MonkeyPatch, client: Any, then: Callable[[Exchange], object]
) -> None:
    """Have something called after each call of the API, as `after_exchanges` says."""
    after_exchanges(monkeypatch, client._api, then)


def test_the_page_names_what_puts_and_scans_by_way_of_hubs_do_not_take() -> None:
    text = (ROOT / "docs" / "hubs.md").read_text().split("## Put to whole queues, and scan them")[1]
    page = text.split("## ")[0]
    scan = {*inspect.signature(Queue.scan).parameters, *ScannerOptions.__annotations__}
    missing = scan - {*inspect.signature(HubQueue.scan).parameters, "options"}
    put = inspect.signature(Queue.put).parameters.keys()
    missing |= put - inspect.signature(HubQueue.put).parameters.keys() - {"since"}
    assert "follow" in missing
    assert not [name for name in sorted(missing) if f"`{name}`" not in page]
    assert "Iterator[Message]" in inspect.signature(HubQueue.put).parameters["messages"].annotation
    assert "iterators" not in page


@both_faces
def test_what_is_put_is_what_is_read(scene: Scene) -> None:
    queue = scene.queue
    headers = [("n", b"1"), ("\u00fc", b"\xff")]
    queue.put(Message("t", b"keyed", key=b"k", headers=headers))
    queue.put([Message("\u00fc", b""), Message("t", b"\xff")], partition=2)
    assert queue.partitions == 3
    with scene.store.queue(QUEUE).scan() as scanner:
        stored = list(scanner)
    assert list(queue.scan()) == stored
    assert {(m.topic, m.value, m.key, m.headers) for m in stored} == {
        ("t", b"keyed", b"k", tuple(headers)),
        ("\u00fc", b"", None, ()),
        ("t", b"\xff", None, ()),
    }
    [first, second] = queue.scan(partition=2)
    assert [m.value for m in queue.scan(partition=2, start=second.id)] == [b"\xff"]
    assert [m.value for m in queue.scan(partition=2, stop=second.id)] == [b""]
    assert list(queue.scan(start=first.id, stop=first.id)) == []
    assert [m.topic for m in queue.scan(topics=["\u00fc"])] == ["\u00fc"]


@both_faces
def test_a_scan_goes_on_at_another_hub(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [b"%d" % number for number in range(5 * MESSAGES_MAX)]
    scene.queue.put([Message("t", value) for value in sent], partition=0)
    at: list[Address] = []
    then_do(monkeypatch, scene.client, lambda call: at.append(call.address))
    came = []
    for message in scene.queue.scan():
        came.append(message.value)
        if len(came) == 10:
            scene.end(at[-1])
    assert came == sent
    assert len(set(at)) == 2
    assert scene.queue.put(Message("t", b"after"))


@both_faces
def test_a_put_returns_the_ids(scene: Scene) -> None:
    one = scene.queue.put(Message("t", b"1"), partition=2)
    several = scene.queue.put([Message("t", b"2"), Message("t", b"3")], partition=2)
    assert isinstance(one, MessageID)
    assert isinstance(several, MessageIDs)
    iterated = scene.queue.put(iter([Message("t", b"i")]), partition=2)
    assert isinstance(iterated, MessageIDs)
    several = [*several, *iterated]
    assert [one, *several] == [message.id for message in scene.queue.scan()]
    keyed = scene.queue.put([Message("t", b"4")], key="k")
    partition = scene.store.queue(QUEUE).choose_partition(None, "k")
    assert [*keyed] == [m.id for m in scene.queue.scan(partition=partition) if m.value == b"4"]


@both_faces
def test_a_put_with_an_idempotency_key_is_there_once(scene: Scene) -> None:
    since = scene.queue.put(Message("t", b"0"), partition=1)
    messages = [Message("t", b"1"), Message("t", b"2")]
    for_good = {"partition": 1, "idempotency_key": "once", "since": since}
    first = scene.queue.put(messages, **for_good)
    assert scene.queue.put(messages, **for_good) == first
    assert scene.store.queue(QUEUE).put(messages, **for_good) == first, "a Queue finds it, too"
    with pytest.raises(IdempotencyKeyReusedError) as caught:
        scene.queue.put(messages[:1], **for_good)
    assert (caught.value.count, caught.value.count_before) == (1, 2)
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert [message.value for message in scene.queue.scan()] == [b"0", b"1", b"2"]


@both_faces
def test_a_put_whose_answer_was_lost_is_repeated_and_is_there_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Address] = []

    def lose_some(call: Exchange) -> None:
        if call.method.name == "put" and len(lost) < 3:
            lost.append(call.address)
            raise ConnectionError("no answer came")

    then_do(monkeypatch, scene.client, lose_some)
    message, several = Message("t", b"v"), [Message("t", b"1"), Message("t", b"2")]
    put: list[MessageID] = []
    for messages, given in (
        (message, {}),
        (several, {}),
        (message, {"partition": 2}),
        (several, {"key": "k"}),
        (Message("t", b"v", key=b"k"), {}),
        (several, {"partition": 1, "idempotency_key": "once"}),
    ):
        lost.clear()
        ids = scene.queue.put(messages, **given)
        assert len(lost) == 3
        put += [ids] if isinstance(ids, MessageID) else ids
    assert sorted(each.id for each in scene.queue.scan()) == sorted(put)
    assert len(put) == 9


@both_faces
def test_a_put_whose_hub_ended_before_it_answered_is_repeated_at_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Address] = []

    def end_it(call: Exchange) -> None:
        if call.method.name == "put" and not ended:
            ended.append(call.address)
            scene.end(call.address)
            raise ConnectionError("no answer came")

    then_do(monkeypatch, scene.client, end_it)
    put = scene.queue.put(Message("t", b"v"))
    assert ended
    assert [each.id for each in scene.queue.scan()] == [put]


@both_faces
def test_a_put_whose_answer_is_always_lost_has_an_unknown_outcome_and_is_there_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Address] = []

    def lose(call: Exchange) -> None:
        if call.method.name == "put":
            lost.append(call.address)
            raise ConnectionError("no answer came")

    addresses = [hub.address for hub in scene.hubs]
    with hqueue.connect_hubs(addresses, queue=QUEUE, operation_timeout_ms=300) as client:
        then_do(monkeypatch, client, lose)
        with pytest.raises(HubUnavailableError) as caught:
            client.queue().put(Message("t", b"v"))
    assert caught.value.outcome is Outcome.UNKNOWN
    assert len(lost) > 1
    assert [each.value for each in scene.queue.scan()] == [b"v"]


@both_faces
@pytest.mark.parametrize(
    ("reads", "use"),
    [
        ("currentPosition", lambda queue: queue.put(Message("t", b"v"))),
        ("getQueueLocations", lambda queue: queue.partitions),
        ("messageScannerOpen", lambda queue: queue.scan().next()),
        ("messageScannerGetList", lambda queue: queue.scan().next()),
    ],
)
def test_an_answer_that_is_lost_leaves_nothing_unknown_of_a_call_that_only_reads(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, reads: str, use: Callable[[Any], object]
) -> None:
    lost: list[str] = []

    def lose(call: Exchange) -> None:
        if call.method.name == reads:
            lost.append(reads)
            raise TimeoutError("no answer came")

    scene.queue.put(Message("t", b"before"))
    addresses = [hub.address for hub in scene.hubs]
    with hqueue.connect_hubs(addresses, queue=QUEUE, operation_timeout_ms=100) as client:
        then_do(monkeypatch, client, lose)
        while not lost:  # On a busy machine the time may be over before that call.
            with pytest.raises(HubUnavailableError) as caught:
                use(client.queue())
            assert caught.value.outcome is Outcome.NOT_APPLIED
    assert [each.value for each in scene.queue.scan()] == [b"before"]


@both_faces
def test_puts_share_a_position_and_go_on_after_a_truncation(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    then_do(monkeypatch, scene.client, lambda call: calls.append(call.method.name))
    for _ in range(3):
        scene.queue.put(Message("t", b"before"))
    scene.store.disable_queue(QUEUE)
    scene.store.truncate_queue(QUEUE)
    scene.queue.put(Message("t", b"after"))
    assert calls == ["currentPosition", *["put"] * 4]
    assert [each.value for each in scene.queue.scan()] == [b"after"]


@both_faces
def test_a_scan_is_a_scanner_as_that_of_a_queue(scene: Scene) -> None:
    scene.queue.put([Message("t", b"%d" % number) for number in range(2_000)], partition=2)
    with scene.queue.scan() as scanner:
        first = scanner.next()
        assert first is not None
        assert first.value == b"0"
        assert next(iter(scanner)).value == b"1", "it goes on where it stands"
    for hub in scene.hubs:
        assert hub.hub.api is not None
        assert len(hub.hub.api.scanners) == 0, "the hubs' scanners are closed with it"
    with pytest.raises(ClosedError):
        scanner.next()
    whole = scene.queue.scan()
    assert len(list(whole)) == 2_000
    assert whole.next() is None
    scene.store.disable_queue(QUEUE)
    broken = scene.queue.scan()
    for _ in range(2):
        with pytest.raises(QueueDisabledError):
            broken.next()


@both_faces
@pytest.mark.parametrize(
    "given",
    [
        {"messages": []},
        {"messages": [b"v"]},
        {"messages": Message("t", b"v"), "partition": 3},
        {"messages": Message("t", b"v"), "partition": -1},
        {"messages": Message("t", b"v"), "partition": 0, "key": "k"},
        {"messages": Message("t", b"v"), "idempotency_key": "once"},
        {"messages": Message("t", b"v"), "partition": 0, "idempotency_key": b""},
        {"messages": Message("t", b"v"), "partition": 0, "since": 1},
    ],
)
def test_a_put_that_makes_no_sense_is_refused(scene: Scene, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        scene.queue.put(**given)
    assert list(scene.queue.scan()) == []


@both_faces
def test_errors_are_those_of_a_queue(scene: Scene) -> None:
    with pytest.raises(MessageTooLargeError):
        scene.queue.put([Message("t", bytes(5 << 20))] * 2)
    with pytest.raises(InvalidInputError):
        scene.queue.scan(start=2, stop=1)
    with pytest.raises(QueueNotFoundError):
        scene.client.queue("other").put(Message("t", b"v"))
    scene.store.disable_queue(QUEUE)
    with pytest.raises(QueueDisabledError) as caught:
        scene.queue.put(Message("t", b"v"))
    assert caught.value.outcome is Outcome.NOT_APPLIED
    scene.client.close()
    with pytest.raises(ClosedError):
        scene.queue.put(Message("t", b"v"))


@both_faces
def test_hubs_without_the_api_and_none_at_all_are_told_apart(scene: Scene) -> None:
    with contextlib.ExitStack() as stack:
        without = stack.enter_context(
            HubThread(stack.enter_context(scene.backend.connect()), QUEUE)
        )
        client = stack.enter_context(hqueue.connect_hubs(without.address, queue=QUEUE))
        with pytest.raises(InvalidInputError, match="HQUEUE_HUB_API_PORT"):
            client.queue().put(Message("t", b"v"))
        gone = without.address
    with (
        hqueue.connect_hubs(gone, queue=QUEUE, operation_timeout_ms=100) as client,
        pytest.raises(HubUnavailableError) as caught,
    ):
        client.queue().put(Message("t", b"v"))
    assert caught.value.outcome is Outcome.NOT_APPLIED
