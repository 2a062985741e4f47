"""A port that reads what comes and answers nothing: ``python -m tests.strangers.sink [FOLDER]``. It
prints its port, and ends with its input. With the certificates in a folder it speaks TLS.

What strangers do to it costs the machine what they cost it anywhere, and the role that is measured
nothing: so it shows what an honest caller waits for that no server could mend.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from hqueue.net.contexts import TlsContexts
from hqueue.net.tls_files import TlsFiles


class _Sink(asyncio.Protocol):
    """Keeps nothing, and waits for the other side to end."""


async def main() -> None:
    loop = asyncio.get_running_loop()
    tls = None
    if sys.argv[1:]:
        folder = Path(sys.argv[1])
        files = TlsFiles(str(folder / "ca.pem"), str(folder / "hub.pem"))
        tls = TlsContexts(files, serves=True).current()
    loop.set_exception_handler(lambda loop, context: None)  # Of strangers there are many.
    server = await loop.create_server(_Sink, "127.0.0.1", 0, backlog=1_024, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main())
