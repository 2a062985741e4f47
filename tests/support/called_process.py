"""A process of its own that serves calls of hubs, and does nothing with them:
``python -m tests.support.called_process [loop]``. It prints its port, and ends with its input.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from typing import Any

from hqueue.rpc.server import ThriftServer
from hqueue.rpc.services import load
from hqueue.runtime.memory import bound_arenas
from hqueue_workers.hub.serving.answers import as_thrift

IDL, STRUCTS = load("hub"), load("subscriber")


class _Hub:
    def publishMessages(  # noqa: N802  (the IDL's)
        self, queue: Any, publisher: Any, topic: Any, messages: Any, again: Any
    ) -> Any:
        time.sleep(0.5)  # Meanwhile it has all of them.
        return IDL.TPublished(STRUCTS.TMessageID(len(messages), 0), 0, 1)


async def _serve(server: ThriftServer) -> None:
    server.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    bound_arenas()
    listener = socket.create_server(("127.0.0.1", 0))
    in_loop = "loop" in sys.argv
    server = ThriftServer(
        IDL.HQueueHubService,
        _Hub(),
        listener,
        threads=16,
        in_loop=in_loop,
        connections_max=256,
        call_bytes_max=16 * 2**20,
        idle_ms_max=60_000,
        as_declared=as_thrift,
    )
    print(listener.getsockname()[1], flush=True)
    if in_loop:
        asyncio.run(_serve(server))
        return
    server.start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
