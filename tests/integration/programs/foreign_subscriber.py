"""A subscriber that uses nothing of hqueue but the IDL and what docs/zookeeper.md says of nodes.

Its arguments: the IDL's file, ZooKeeper, the root, the queue, the subscriber's name, the partitions
with commas between, a file, and what it answers first, one a call, with commas between; after them
0. That is a status, or ``a:b`` to reject the message with number a, and have those from b on come
again. It appends each message to the file before it answers, as a JSON document
a line: partition, timestamp, sequence, topic, value, key, headers, and the status of its call. It
prints "ready" when it is present, and ends when its stdin does.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from typing import Any, TextIO

import thriftpy2
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError
from thriftpy2.protocol import TBinaryProtocolFactory
from thriftpy2.rpc import make_server

SESSION_TIMEOUT_S = 4


class Handler:
    """The service."""

    def __init__(self, file: TextIO, statuses: list[str], idl: Any) -> None:
        self._idl = idl
        self._file = file
        self._statuses = statuses
        self._lock = threading.Lock()

    def consumeMessages(self, messages: list[Any]) -> int:  # noqa: N802
        with self._lock:
            answer = self._statuses.pop(0) if self._statuses else "0"
            rejected, _, again = answer.partition(":")
            status = 1 if again else int(answer)
            for message in messages:
                seen = {
                    "partition": message.partitionID,
                    "timestamp": message.id.timestamp,
                    "sequence": message.id.sequenceID,
                    "topic": message.topic.decode(),
                    "value": message.value.decode(errors="replace"),
                    "key": None if message.key is None else message.key.decode(errors="replace"),
                    "headers": [
                        [header.name.decode(), header.value.decode(errors="replace")]
                        for header in message.headers or []
                    ],
                    "status": status,
                }
                self._file.write(json.dumps(seen) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
            if again:
                raise self._idl.TDeliveryAnswer({int(rejected): "foreign"}, int(again))
            return status


def main() -> None:
    idl, hosts, root, queue, name, partitions, path, *statuses = sys.argv[1:]
    loaded = thriftpy2.load(idl, module_name="foreign_thrift")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with open(path, "a", encoding="utf-8") as file:
        answers = [status for status in ",".join(statuses).split(",") if status]
        server = make_server(
            loaded.HQueueSubscriberService,
            Handler(file, answers, loaded),
            "127.0.0.1",
            port,
            proto_factory=TBinaryProtocolFactory(decode_response=False),
            client_timeout=None,
        )
        server.daemon = True
        threading.Thread(target=server.serve, daemon=True).start()
        zookeeper = KazooClient(hosts, timeout=SESSION_TIMEOUT_S)
        zookeeper.start()
        for partition in partitions.split(","):
            become_present(zookeeper, f"{root}/queues/{queue}/{partition}/{name}", port)
        print("ready", flush=True)
        sys.stdin.read()
        zookeeper.stop()


def become_present(zookeeper: KazooClient, node: str, port: int) -> None:
    """Create the two ephemeral nodes, and the checkpoint if there is none."""
    zookeeper.ensure_path(node.rpartition("/")[0])
    address = json.dumps({"version": 1, "address": f"127.0.0.1:{port}"}).encode()
    with contextlib.suppress(NodeExistsError):
        zookeeper.create(node, b'{"version": 1, "next": "0-0"}')
    for name, data in (("topics", b'{"version": 1, "topics": null}'), ("address", address)):
        ends = time.monotonic() + 3 * SESSION_TIMEOUT_S
        while True:
            try:
                zookeeper.create(f"{node}/{name}", data, ephemeral=True)
                break
            except NodeExistsError:  # The one before died just now.
                assert time.monotonic() < ends, f"another subscriber stays at {node}"
                time.sleep(0.1)


if __name__ == "__main__":
    main()
