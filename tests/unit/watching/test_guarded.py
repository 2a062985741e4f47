"""What watches a process may raise anything: no put, poll, answer or listener fails by it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import pytest

import hqueue
from hqueue import Message, ReceivedMessage, Status
from hqueue.push.listener import Listeners
from hqueue.watching.observer import Observer
from hqueue.watching.observers import observe
from tests.support.watching import only_here

pytestmark = pytest.mark.in_memory
MakeQueue = Callable[..., hqueue.Queue]
METHODS = ("put", "create", "append", "received", "settle", "answered", "process", "deliver")


def fail(*_: object, **__: object) -> NoReturn:
    raise OSError("a processor of spans is away")


class FailingAtOnce(Observer):
    """Fails in each method."""


for name in METHODS:
    setattr(FailingAtOnce, name, fail)


class FailingAtTheEnd(Observer):
    """Fails in what each method returns."""

    def put(self, queue: str, messages: Any, *_: object, **__: object) -> Any:
        return messages, fail

    def append(self, *_: object) -> Any:
        return fail

    def settle(self, *_: object) -> Any:
        return fail

    @contextlib.contextmanager
    def process(self, *_: object) -> Iterator[None]:
        yield
        fail()


@pytest.fixture(params=[FailingAtOnce, FailingAtTheEnd])
def failing(request: pytest.FixtureRequest) -> Iterator[None]:
    with only_here():
        observe(request.param())
        yield


@pytest.mark.usefixtures("failing")
def test_a_program_goes_on_when_what_watches_it_fails(
    client: hqueue.Client, make_queue: MakeQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = make_queue(partitions=1)
    queue.put(Message("t", b"1"))
    with queue.producer() as producer:
        producer.send(Message("t", b"2"))
    with hqueue.Consumer(queue.name, group="plain", client=client) as consumer:
        assert [each.value for each in consumer.messages(idle_ms_max=500)] == [b"1", b"2"]
        consumer.commit()
    with hqueue.ShareConsumer(queue.name, group="shares", client=client) as shared:
        assert [each.value for each in shared.poll(30_000)] == [b"1", b"2"]
    listened: list[bytes] = []

    def listen(messages: Sequence[ReceivedMessage]) -> Status:
        listened.extend(each.value for each in messages)
        return Status.DONE

    Listeners(listen, 1_000, "reader").consume(list(queue.scan()))
    assert listened == [b"1", b"2"]
    assert "metrics or traces failed: OSError: a processor of spans is away" in caplog.text


def test_an_interruption_in_an_observer_ends_the_call(make_queue: MakeQueue) -> None:
    queue = make_queue(partitions=1)

    class TimeLimitError(Exception):
        pass

    def stop(*_: object) -> NoReturn:
        raise TimeLimitError

    class Interrupted(Observer):
        def append(self, *_: object) -> NoReturn:
            signal.raise_signal(signal.SIGUSR1)
            raise AssertionError("the handler raised nothing")

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with only_here():
            observe(Interrupted())
            with pytest.raises(TimeLimitError):
                queue.put(Message("t", b"1"))
    finally:
        signal.signal(signal.SIGUSR1, before)
