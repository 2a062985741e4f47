"""The Thrift API at its port."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry
from thriftpy2.rpc import client_context

from hqueue.settings.limits import BATCH_HEADERS_MAX, BATCH_MESSAGES_MAX, TOPIC_BYTES_MAX
from hqueue_workers.api.server import ApiServer
from hqueue_workers.api.structs import API, SERVICE
from hqueue_workers.node.api_settings import ApiSettings
from hqueue_workers.node.runtime import Runtime
from tests.support.backends import MemoryBackend

HEADERS = BATCH_HEADERS_MAX // BATCH_MESSAGES_MAX

_SHARED = API.subscriber


@pytest.mark.thorough("a million headers, 3 s")
def test_the_batch_with_most_parts_is_put() -> None:
    message = _SHARED.TMessage(
        id=_SHARED.TMessageID(timestamp=1, sequenceID=1),
        partitionID=1,
        topic=b"t" * TOPIC_BYTES_MAX,
        value=b"",
        key=b"",
        headers=[_SHARED.THeader(name=b"", value=b"")] * HEADERS,
    )

    def put(port: int) -> None:
        with client_context(SERVICE, "127.0.0.1", port, socket_timeout=120_000) as caller:
            caller.putMessages("q", [message] * BATCH_MESSAGES_MAX)

    async def serve() -> None:
        runtime = Runtime(2)
        api = ApiServer(client, ApiSettings(api_port=0), 1_000, runtime, CollectorRegistry())
        try:
            await runtime.read(lambda: put(api.address.port))
        finally:
            await api.close()
            await runtime.close()

    with MemoryBackend().connect() as client:
        queue = client.create_queue("q", partitions=1)
        asyncio.run(serve())
        assert [each.count for each in queue.offsets()] == [BATCH_MESSAGES_MAX]
