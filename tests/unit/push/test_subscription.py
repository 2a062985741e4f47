"""What a subscription wants, and what listeners answer."""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import logging
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from hqueue import (
    InvalidInputError,
    MessageID,
    MessageListener,
    ReceivedMessage,
    Status,
    Subscription,
)
from hqueue.push.answers import Answer
from hqueue.push.listener import Listener, Listeners
from hqueue.push.loop_service import LoopConsumption, LoopListeners
from hqueue.runtime.program_loop import ProgramLoop
from hqueue.settings.limits import REASON_LENGTH_MAX

MESSAGES = [ReceivedMessage("t", value, MessageID(1, n), 0) for n, value in enumerate((b"a", b"b"))]
TIMEOUT_MS = 5_000


def test_without_partitions_all_are_wanted_and_begin_where_the_subscription_says() -> None:
    assert Subscription("s").starts(3) == dict.fromkeys(range(3), "earliest")
    assert Subscription("s", start="latest").starts(2) == {0: "latest", 1: "latest"}


def test_partitions_that_were_added_are_all_that_is_wanted_each_with_its_start() -> None:
    moment = datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc)
    wanted = Subscription("s", ["a", "b"], start="latest")
    wanted.add_partition(1).add_partition(2, MessageID(5, 6)).add_partition(3, moment)
    wanted.add_partitions([4]).add_partitions({5: None, 6: 1_000})
    assert wanted.topics == {"a", "b"}
    assert wanted.starts(7) == {
        1: "latest",
        2: MessageID(5, 6),
        3: MessageID(int(moment.timestamp() * 1_000)),
        4: "latest",
        5: "latest",
        6: MessageID(1_000),
    }


@pytest.mark.parametrize("partition", [-1, 3, True, "1", None, 1.0])
def test_a_partition_that_the_queue_has_not_is_refused(partition: int) -> None:
    with pytest.raises(InvalidInputError):
        Subscription("s").add_partition(partition).starts(3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "a/b"},
        {"name": ""},
        {"name": "s", "topics": "abc"},
        {"name": "s", "topics": [""]},
        {"name": "s", "topics": [b"a"]},
        {"name": "s", "topics": [str(n) for n in range(1_025)]},
        {"name": "s", "start": "newest"},
        {"name": "s", "start": -1},
        {"name": "s", "start": datetime.datetime(2024, 5, 1)},
        {"name": "s", "start": None},
    ],
)
def test_a_subscription_that_can_not_be_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        Subscription(**arguments)  # type: ignore[arg-type]


def answer(*listeners: Listener, timeout_ms: int = TIMEOUT_MS) -> Answer:
    called = Listeners(listeners, timeout_ms, "sub")
    called.start()
    try:
        return called.consume(MESSAGES)
    finally:
        called.close()


def test_listeners_of_every_kind_are_called_in_turn_with_the_messages() -> None:
    calls: list[tuple[str, list[bytes]]] = []

    class Plain(MessageListener):
        def consume(self, messages: Sequence[ReceivedMessage]) -> None:
            calls.append(("class", [m.value for m in messages]))

    class Async(MessageListener):
        async def consume(self, messages: Sequence[ReceivedMessage]) -> Status:
            await asyncio.sleep(0)
            calls.append(("async class", [m.value for m in messages]))
            return Status.DONE

    class Called:
        async def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
            calls.append(("async callable", [m.value for m in messages]))

    def function(messages: Sequence[ReceivedMessage]) -> int:
        calls.append(("function", [m.value for m in messages]))
        return 0

    async def coroutine(messages: Sequence[ReceivedMessage]) -> None:
        calls.append(("async function", [m.value for m in messages]))

    assert answer(Plain(), Async(), Called(), function, coroutine) == Answer(Status.DONE)
    kinds = ["class", "async class", "async callable", "function", "async function"]
    assert calls == [(kind, [b"a", b"b"]) for kind in kinds]


@pytest.mark.parametrize("status", [Status.RETRY, Status.DEAD_LETTER, 1, 2])
def test_the_first_that_is_not_done_answers_for_all(status: int) -> None:
    def fail(messages: Sequence[ReceivedMessage]) -> None:
        raise AssertionError("called after one that was not done")

    assert answer(lambda messages: None, lambda messages: status, fail) == Answer(Status(status))


@pytest.mark.parametrize("wrong", [ValueError("no"), 7, "done", True, b""])
def test_a_listener_that_raises_or_answers_nonsense_means_retry_and_is_logged(
    wrong: object, caplog: pytest.LogCaptureFixture
) -> None:
    def listener(messages: Sequence[ReceivedMessage]) -> object:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    async def coroutine(messages: Sequence[ReceivedMessage]) -> object:
        return listener(messages)

    async def answer_in_loop(consume: Any) -> Answer:
        listeners = LoopListeners(consume, TIMEOUT_MS, ProgramLoop(), "sub")
        return await LoopConsumption(listeners, 1, TIMEOUT_MS).consume(MESSAGES)

    for consume in (listener, coroutine):
        for answered in (answer(consume), asyncio.run(answer_in_loop(consume))):
            assert answered.status is Status.RETRY
            assert answered.reason
    said = f"a listener of subscriber 'sub' of topic {MESSAGES[0].topic!r} failed"
    assert caplog.text.count(said) == 4
    assert "b'a'" not in caplog.text, "payloads are never logged"


def test_an_async_listener_that_takes_too_long_is_cancelled_and_means_retry() -> None:
    cancelled = threading.Event()

    async def slow(messages: Sequence[ReceivedMessage]) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    assert answer(slow, timeout_ms=100) == Answer(Status.RETRY, "TimeoutError")
    assert cancelled.wait(5)


def test_a_call_that_is_left_with_its_loop_ends_wherever_it_is_collected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In another context, and behind the loop's end."""
    hanging = threading.Event()

    async def hang(messages: Sequence[ReceivedMessage]) -> None:
        hanging.set()
        await asyncio.sleep(60)

    async def begin() -> Coroutine[Any, Any, Answer]:
        call = LoopListeners(hang, TIMEOUT_MS, ProgramLoop(), "sub").consume(MESSAGES)
        contextvars.copy_context().run(call.send, None)
        await asyncio.sleep(0)
        return call

    call = asyncio.run(begin())
    assert hanging.is_set()
    call.close()
    assert not caplog.records


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("it has no text")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no good"), "ValueError: no good"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError(), "RuntimeError"),
        (ValueError("half a \udc80"), "ValueError: half a ?"),
        (ValueError("x" * 5_000), ("ValueError: " + "x" * 5_000)[:REASON_LENGTH_MAX]),
        (UnspeakableError(), "UnspeakableError"),
    ],
)
def test_what_a_listener_raises_is_the_reason(
    error: Exception, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "hqueue.runtime.foreign")

    def plain(messages: Sequence[ReceivedMessage]) -> None:
        raise error

    async def coroutine(messages: Sequence[ReceivedMessage]) -> None:
        raise error

    assert answer(plain) == answer(coroutine) == Answer(Status.RETRY, reason)


@pytest.mark.parametrize("listeners", [[], None, 5, ["x"], [None]])
def test_what_is_no_listener_is_refused(listeners: object) -> None:
    with pytest.raises(InvalidInputError):
        Listeners(listeners, TIMEOUT_MS, "sub")  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_listener_that_raises_what_is_no_exception_is_called_again_and_nothing_ends(
    error: BaseException,
) -> None:
    raising = [True]

    def plain(messages: Sequence[ReceivedMessage]) -> None:
        if raising[0]:
            raise error

    async def coroutine(messages: Sequence[ReceivedMessage]) -> None:
        plain(messages)

    async def leaving_a_task(messages: Sequence[ReceivedMessage]) -> None:
        async def exits() -> None:
            plain(messages)

        asyncio.get_running_loop().create_task(exits())

    for listener in (plain, coroutine, leaving_a_task):
        raising[0] = True
        listeners = Listeners([listener], TIMEOUT_MS, "sub")
        listeners.start()
        try:
            status, reason, _ = listeners.consume(MESSAGES)
            if listener is not leaving_a_task:
                assert status is Status.RETRY
                assert reason.startswith(type(error).__name__)
            raising[0] = False
            for _ in range(6):
                assert listeners.consume(MESSAGES).status is Status.DONE
        finally:
            listeners.close()
