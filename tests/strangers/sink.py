"""A port that reads what comes and answers nothing: ``python -m tests.strangers.sink``. It prints
its port, and ends with its input.

What strangers do to it costs the machine what they cost it anywhere, and the role that is measured
nothing: so it shows what an honest caller waits for that no server could mend.
"""

from __future__ import annotations

import asyncio
import resource
import sys


class _Sink(asyncio.Protocol):
    """Keeps nothing, and waits for the other side to end."""


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Sink, "127.0.0.1", 0, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main())
