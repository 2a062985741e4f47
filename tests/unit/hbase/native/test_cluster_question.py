"""Masters that say which cluster theirs is before a client has proved itself, and others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hqueue import Settings
from hqueue.hbase.native.cluster_question import ClusterQuestion
from hqueue.hbase.native.opening import direct
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.wire import LENGTH, WHOLE_CONNECTION, varint
from hqueue.net.refusals import RefusedError
from hqueue.runtime.steps import carry_out, carry_out_in_loop
from hqueue.settings.addresses import Address
from tests.support.tls_servers import make_certificates, server_context

NAMED = "0f3e-id"
QUICK_S = 5.0

Serve = Callable[..., Address]


def frame(*parts: Any) -> bytes:
    """An answer that is about the whole connection."""
    header, *messages = (each.SerializeToString() for each in parts)
    data = b"".join(varint(len(each)) + each for each in (header, *messages))
    return LENGTH.pack(len(data)) + data


GOOD = frame(pb.ResponseHeader(call_id=WHOLE_CONNECTION), pb.GetClusterIdResponse(cluster_id=NAMED))
REFUSAL = frame(
    pb.ResponseHeader(
        call_id=WHOLE_CONNECTION,
        exception=pb.ExceptionResponse(
            exception_class_name="org.apache.hadoop.hbase.ipc.FatalConnectionException",
            stack_trace="Expected HEADER=HBas",
        ),
    )
)
OLDER = {
    "refuses": REFUSAL,
    "closes": b"",
    "is cut off": GOOD[:-1],
    "says nothing": frame(
        pb.ResponseHeader(call_id=WHOLE_CONNECTION), pb.GetClusterIdResponse(cluster_id="")
    ),
    "is none": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Servers that hear the question, say something and close the connection."""
    with contextlib.ExitStack() as stack:

        def begin(said: bytes, tls: ssl.SSLContext | None = None) -> Address:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def run() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        opened, _ = listener.accept()
                        with opened:
                            spoken = tls.wrap_socket(opened, server_side=True) if tls else opened
                            assert spoken.recv(6, *(() if tls else (socket.MSG_WAITALL,))) in (
                                b"Regist",
                            )
                            spoken.sendall(said)
                            if tls:
                                spoken.close()

            thread = threading.Thread(target=run)
            thread.start()
            stack.callback(thread.join)
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            return Address("127.0.0.1", listener.getsockname()[1])

        yield begin


def away() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return Address("127.0.0.1", taken.getsockname()[1])


@pytest.fixture(params=["blocking", "asyncio"])
def ask(request: pytest.FixtureRequest) -> Callable[..., str]:
    def one(*masters: Address, **given: Any) -> str:
        settings = Settings(hbase_masters=masters, connect_timeout_ms=1_000, **given)
        work = ClusterQuestion(settings, direct).ask()
        if request.param == "blocking":
            return carry_out(work, lambda _: None)
        return asyncio.run(carry_out_in_loop(work, asyncio.sleep))

    return one


def test_one_master_of_many_names_the_cluster(ask: Callable[..., str], serve: Serve) -> None:
    others = [serve(said) for said in OLDER.values()]
    assert ask(away(), *others, serve(GOOD)) == NAMED


def test_a_master_that_speaks_tls_is_asked_by_tls(
    ask: Callable[..., str], serve: Serve, tmp_path: Path
) -> None:
    folder = make_certificates(tmp_path)
    master = serve(GOOD, server_context(folder))
    assert ask(master, hbase_tls=True, tls_ca=str(folder / "ca.pem")) == NAMED


@pytest.mark.parametrize("older", OLDER)
def test_masters_that_do_not_know_the_question_are_a_refusal_that_says_what_to_do(
    ask: Callable[..., str], serve: Serve, older: str
) -> None:
    with pytest.raises(RefusedError, match=r"several clusters.*leave hbase_masters out"):
        ask(serve(OLDER[older]))


def test_masters_that_are_away_may_come_back(ask: Callable[..., str], serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun_s = time.monotonic()
        with pytest.raises(OSError, match="timed out") as caught:
            ask(away(), serve(REFUSAL), Address("127.0.0.1", silent.getsockname()[1]))
    assert not isinstance(caught.value, RefusedError)
    assert time.monotonic() - begun_s < QUICK_S


def test_the_answer_is_asked_for_once(serve: Serve) -> None:
    settings = Settings(hbase_masters=(serve(GOOD),))
    asked = []
    question = ClusterQuestion(settings, lambda *given: asked.append(given) or given[0])
    assert [carry_out(question.ask(), lambda _: None) for _ in range(3)] == [NAMED] * 3
    assert len(asked) == 1
