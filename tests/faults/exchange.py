"""A queue and its groups, as one version leaves them and another one goes on with them.

No server is needed: the store is in memory, and its bytes go from process to process in a file.
The code of either version runs this text, with the doubles of its own tests.

    python -c TEXT leave|continue FILE
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from hqueue import Client, Consumer, Message, Settings, ShareConsumer
from hqueue.runtime.clock import SYSTEM_CLOCK
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.memory_store import MemoryStore
from tests.support.memory.metadata import MemoryCoordination, MemoryServer

QUEUE, PARTITIONS, MESSAGES, TAKEN = "q", 1, 10, 4
WAIT_MS = 20_000.0
SETTINGS = Settings()


def main(step: str, path: Path) -> None:
    """Leave a queue in a file, or go on with the one in the file; print what was met."""
    cluster, server = MemoryCluster(), MemoryServer()
    store = MemoryStore(cluster, SETTINGS)
    with Client(
        SETTINGS, store, lambda loop: MemoryCoordination(server, loop=loop), SYSTEM_CLOCK
    ) as client:
        client.create_queue(QUEUE, partitions=PARTITIONS)
        met: dict[str, Any] = {}
        if step == "continue":
            _load(cluster, server, json.loads(path.read_text()))
            with client.queue(QUEUE).scan() as scanner:
                met["scanned"] = [_shown(message) for message in scanner]
            met["subscribers"] = [each.subscriber for each in client.list_subscribers(QUEUE)]
        else:
            queue = client.queue(QUEUE)
            queue.put([Message("t", b"%d" % each) for each in range(MESSAGES // 2)], partition=0)
            later = [
                Message("t", b"%d" % each, key=b"k", headers=[("h", b"v")])
                for each in range(MESSAGES // 2, MESSAGES)
            ]
            queue.put(later, partition=0)
            client.add_subscriber(QUEUE, "s")
        met["group"], met["share group"] = _consumed(client), _shared(client)
        if step == "leave":
            path.write_text(json.dumps(_dump(cluster, server)))
    print(json.dumps(met))


def _shown(message: Any) -> list[Any]:
    key = message.key and message.key.decode()
    headers = [[name, value.decode()] for name, value in message.headers]
    return [message.value.decode(), key, headers]


def _consumed(client: Client) -> list[str]:
    with contextlib.closing(Consumer([QUEUE], group="g", client=client)) as consumer:
        taken = consumer.poll(WAIT_MS, messages_max=TAKEN)
        consumer.commit()
    return [message.value.decode() for message in taken]


def _shared(client: Client) -> list[str]:
    """What a consumer of a share group gets; one message is rejected, the others are done."""
    shared = ShareConsumer([QUEUE], group="w", client=client, auto_acknowledge=False)
    with contextlib.closing(shared) as consumer:
        taken = consumer.poll(WAIT_MS, messages_max=TAKEN)
        consumer.reject(taken[0], reason="no")
        for message in taken[1:]:
            consumer.acknowledge(message)
        consumer.commit()
    return [message.value.decode() for message in taken]


def _dump(cluster: MemoryCluster, server: MemoryServer) -> dict[str, Any]:
    rows = cluster.table(QUEUE).rows
    return {
        "rows": {
            _text(key): {_text(c): _text(cell.value) for c, cell in rows.visible(key).items()}
            for key in rows.between()
        },
        "records": {
            key: _text(entry.value)
            for key in server.tree.below("")
            if (entry := server.tree.get(key)) is not None and entry.owner is None
        },
    }


def _load(cluster: MemoryCluster, server: MemoryServer, dumped: dict[str, Any]) -> None:
    for key, cells in dumped["rows"].items():
        row = {_bytes(column): _bytes(value) for column, value in cells.items()}
        cluster.table(QUEUE).rows.put(_bytes(key), row)
    with server.tree.changed:
        for key, value in dumped["records"].items():
            server.tree.put(key, _bytes(value))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
