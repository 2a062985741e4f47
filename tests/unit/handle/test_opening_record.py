"""Queues are opened by a record if the store does not describe them to this client."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import Message, RequestRefusedError
from hqueue.errors import AuthenticationError, UnsupportedFormatError
from hqueue.handle.opening_record import NAME, decode_opening, encode_opening
from hqueue.runtime.loop import blocking
from tests.support.backends import MemoryBackend

RECORD = b'{"version": 1, "format": 1, "partitions": 3}'


@pytest.fixture
def client() -> Iterator[hqueue.Client]:
    with MemoryBackend().connect() as client:
        client.create_queue("q", partitions=3)
        yield client


@pytest.fixture(params=["blocking", "asyncio"])
def open_queue(
    request: pytest.FixtureRequest, client: hqueue.Client
) -> Callable[[], tuple[int, list[bytes]]]:
    """Opens the queue, puts and reads; returns the partitions and what was read."""

    def by_threads() -> tuple[int, list[bytes]]:
        queue = client.queue("q")
        queue.put(Message("t", b"v"))
        return queue.partitions, [message.value for message in queue.scan()]

    async def by_loop() -> tuple[int, list[bytes]]:
        queue = await hqueue.aio.Client(client).queue("q")
        await queue.put(Message("t", b"v"))
        async with queue.scan() as messages:
            return queue.partitions, [message.value async for message in messages]

    return by_threads if request.param == "blocking" else lambda: asyncio.run(by_loop())


def refuse(
    client: hqueue.Client, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None
) -> None:
    """Let the store describe no queue to this client."""

    def fail() -> Any:
        raise error or RequestRefusedError("HBase refused the request")

    monkeypatch.setattr(
        client._cluster.tables, "describe", SimpleNamespace(asked=lambda _: blocking(fail))
    )


def record(client: hqueue.Client) -> bytes | None:
    return client._cluster._store.log("q").record(NAME)


def test_the_record_has_these_bytes() -> None:
    assert encode_opening(3) == RECORD
    found = decode_opening(RECORD, "q")
    assert (found.name, found.partitions) == ("q", 3)


@pytest.mark.parametrize(
    "changed", [{"version": 2}, {"format": 2}, {"partitions": 0}, {"partitions": "3"}]
)
def test_a_record_of_a_later_release_opens_nothing(changed: dict[str, object]) -> None:
    with pytest.raises(UnsupportedFormatError):
        decode_opening(json.dumps({**json.loads(RECORD), **changed}).encode(), "q")


def test_a_queue_that_is_not_described_is_opened_by_its_record(
    client: hqueue.Client,
    open_queue: Callable[[], tuple[int, list[bytes]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse(client, monkeypatch)
    assert open_queue() == (3, [b"v"])
    with pytest.raises(RequestRefusedError):
        client.queue("q").describe()


def test_without_the_record_it_is_refused_until_it_is_written_again(
    client: hqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for write in (
        lambda: client.alter_queue("q", ttl=3_600),
        lambda: client.create_queue("q", partitions=3, exist_ok=True),
        lambda: client.truncate_queue("q"),
    ):
        store = client._cluster._store
        store.tables.truncate("q")  # Past the library.
        assert record(client) is None
        with monkeypatch.context() as patch:
            refuse(client, patch)
            with pytest.raises(RequestRefusedError):
                client.queue("q")
        write()
        assert record(client) == RECORD


def test_who_does_not_prove_itself_is_refused_at_once(
    client: hqueue.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(client, monkeypatch, AuthenticationError("the server did not let this client in"))
    with pytest.raises(AuthenticationError):
        client.queue("q")


def test_a_record_that_can_not_be_written_keeps_no_queue_from_being_altered(
    client: hqueue.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object) -> bool:
        raise RequestRefusedError("HBase refused the request")

    store = client._cluster._store
    monkeypatch.setattr(store, "log", lambda _: SimpleNamespace(replace_record=refused))
    with caplog.at_level(logging.WARNING):
        assert client.alter_queue("q", ttl=3_600).ttl_seconds == 3_600
    assert "can't open the queue q" in caplog.text
