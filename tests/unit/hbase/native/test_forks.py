"""A forked child opens connections of its own, and the parent's go on."""

from __future__ import annotations

import contextlib
import os

from hqueue import Settings
from hqueue.hbase.native.exchanges import Request
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.servers import Servers
from tests.support.scripted_server import Asked, ScriptedServer, answer


def echo(asked: Asked) -> list[bytes]:
    return [answer(asked, pb.NameBytesPair(name="echo", value=asked.message))]


def ask(servers: Servers, server: ScriptedServer, message: bytes) -> bytes:
    said = servers.ask(Request(server.address, b"Get", message), "q")
    return bytes(pb.NameBytesPair.FromString(said.message).value)


def test_a_child_asks_by_a_connection_of_its_own() -> None:
    with (
        contextlib.closing(ScriptedServer(echo)) as server,
        contextlib.closing(Servers(Settings())) as servers,
    ):
        assert ask(servers, server, b"before") == b"before"
        child = os.fork()
        if child == 0:
            os._exit(0 if ask(servers, server, b"child") == b"child" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ask(servers, server, b"after") == b"after"
        assert len(server.services) == 2
