"""A talk with the other side: what it said before it closed is heard."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from hqueue.net.contexts import TlsContexts
from hqueue.net.layers import Wrapping
from hqueue.net.refusals import RefusedError
from hqueue.net.talking import Receive, Send, Talk, Talking
from hqueue.net.tls import Tls
from hqueue.net.tls_files import TlsFiles
from hqueue.runtime.steps import carry_out
from tests.support.tls_servers import HERE, server_context
from tests.unit.net.test_layers import Xor
from tests.unit.net.test_tls import Server


def carried_out(work: Talking[bytes], server: Server, last: list[bytes]) -> bytes:
    """Work against a server, which says this in the end."""
    said = bytearray()

    def do(step: Send | Receive) -> bytes | None:
        if isinstance(step, Send):
            said.extend(server.take(step.data))
            return None
        if not said and last:
            return last.pop(0)
        if not said:
            raise ConnectionError("over")
        now = bytes(said)
        said.clear()
        return now

    return carry_out(work, do)


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_what_was_said_together_with_the_end_is_heard_before_it(
    tls_folder: Path, is_wrapped: bool
) -> None:
    server = Server(server_context(tls_folder))
    tls = Tls(TlsContexts(TlsFiles(str(tls_folder / "ca.pem"))).current(), HERE, "hbase_tls")
    talk = Talk()

    def heard() -> Talking[bytes]:
        return (yield from talk.hear(4))

    def work() -> Talking[bytes]:
        yield from talk.start_tls(tls)
        if is_wrapped:
            talk.add(Wrapping(Xor(), 1_000))
        talk.say(b"hello")
        yield from talk.flush()
        said = server.say(Wrapping(Xor(), 1_000).seal(b"why not") if is_wrapped else b"why not")
        server.hear()
        said += server.close()
        last.append(said)
        return (yield from heard())

    last: list[bytes] = []
    assert carried_out(work(), server, last) == b"why "
    assert talk.unused() == b"not"
    with pytest.raises(ConnectionError, match="closed"):
        carried_out(heard(), server, last)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_refusal_is_heard_where_nothing_can_be_sent_any_more(
    tls_folder: Path, version: ssl.TLSVersion
) -> None:
    server = Server(server_context(tls_folder, needs_client=True, version=version))
    tls = Tls(TlsContexts(TlsFiles(str(tls_folder / "ca.pem"))).current(), HERE, "hbase_tls")
    talk, answers = Talk(), bytearray()

    def do(step: Send | Receive) -> bytes | None:
        if isinstance(step, Send):
            if server.failure is not None:
                raise BrokenPipeError("it is gone")
            answers.extend(server.take(step.data))
            return None
        if not answers:
            raise ConnectionError("the server closed the connection")
        now = bytes(answers)
        answers.clear()
        return now

    def work() -> Talking[None]:
        yield from talk.start_tls(tls)
        talk.say(b"hello")
        yield from talk.flush()

    with pytest.raises(RefusedError, match="tls_certificate"):
        carry_out(work(), do)


def test_what_was_said_before_a_layer_began_is_not_taken_for_what_it_protects() -> None:
    talk = Talk()

    def work() -> Talking[None]:
        yield from talk.hear(4)
        talk.add(Wrapping(Xor(), 1_000))

    said = [b"last" + b"forged"]
    with pytest.raises(ConnectionError, match="before its protection began"):
        carry_out(work(), lambda step: said.pop())
