"""HBase's own gateways by TLS, which they speak over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import Message, Settings, local
from hqueue.errors import AuthenticationError, QueueNotFoundError
from tests.support.added_gateways import http_gateways
from tests.support.certificates import Certificates


@pytest.fixture(scope="module")
def settings(server: local.LocalServer, certificates: Certificates) -> Iterator[dict[str, Any]]:
    with http_gateways(server, certificates.make("gateway")) as address:
        yield {
            "zookeeper": server.zookeeper,
            "gateways": (address,),
            "transport": "http",
            "gateways_tls": True,
            "tls_ca": str(certificates.folder / "ca.pem"),
        }


def test_a_queue_is_created_filled_read_and_deleted_by_both_faces(
    settings: dict[str, Any], queue_name: str
) -> None:
    sizes = (0, 1, 100_000, 3_000_000, *(1_000_000,) * 8)
    values = [bytes([number]) * size for number, size in enumerate(sizes)]
    with hqueue.connect(Settings(**settings, operation_timeout_ms=20_000)) as client:
        queue = client.create_queue(queue_name, partitions=2)
        for value in values:
            queue.put(Message("t", value), partition=0)
        queue.put([Message("t", b"%d" % number) for number in range(500)], partition=1)

        async def read() -> list[bytes]:
            looped = await hqueue.aio.Client(client).queue(queue_name)
            async with looped.scan(partitions=[0]) as messages:
                return [message.value async for message in messages]

        assert [message.value for message in queue.scan(partitions=[0])] == values
        assert asyncio.run(read()) == values
        assert len(list(queue.scan(partitions=[1]))) == 500
        client.disable_queue(queue_name)
        client.delete_queue(queue_name)
        with pytest.raises(QueueNotFoundError):
            client.queue(queue_name).put(Message("t", b"gone"))


def test_a_gateway_that_cant_be_trusted_is_refused_at_once(
    settings: dict[str, Any], certificates: Certificates
) -> None:
    strange = str(certificates.authority("another-gateway"))
    begun_s = time.monotonic()
    with (
        hqueue.connect(Settings(**{**settings, "tls_ca": strange})) as client,
        pytest.raises(AuthenticationError, match="compare its authority with tls_ca"),
    ):
        client.create_queue("any", partitions=1)
    assert time.monotonic() - begun_s < 5
