"""Servers that never finish a handshake of TLS: their callers end all the same."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from hqueue import HubUnavailableError, Outcome, Settings, StoreUnavailableError
from hqueue.connecting import open_store
from hqueue.settings.addresses import Address
from tests.support.certificates import Certificates
from tests.support.hub_faces import connected

BOUND_MS = 1_000

HELLO_BYTES = 16 * 1024
ANSWERS: dict[str, bytes | None] = {
    "silence": None,
    "an end": b"",
    "a record cut off": b"\x16\x03\x03\x40\x00" + bytes(99),
}
"""What comes after the client's first word; then the connection ends, but for silence."""


@pytest.fixture(params=ANSWERS)
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    answer = ANSWERS[request.param]
    held: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = listener.accept()
                held.append(caller)
                if answer is not None:
                    caller.recv(HELLO_BYTES)
                    caller.sendall(answer)
                    caller.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
    for each in held:
        each.close()


@pytest.mark.parametrize("in_loop", [False, True], ids=["threads", "asyncio"])
def test_a_hub(port: int, certificates: Certificates, in_loop: bool) -> None:
    given = {**certificates.of("loader"), "operation_timeout_ms": BOUND_MS}
    hubs = [Address("127.0.0.1", port)]
    with connected(hubs, in_loop=in_loop, queue="q", **given) as client:
        topic = client.topic("t")
        with pytest.raises(HubUnavailableError) as caught:
            topic.publish(b"v")
    assert caught.value.outcome is Outcome.NOT_APPLIED


@pytest.mark.parametrize("door", ["hbase_masters", "zookeeper"])
def test_hbase_and_zookeeper(port: int, certificates: Certificates, door: str) -> None:
    own = {name: value for name, value in certificates.of("loader").items() if "tls_" in name}
    switch = "hbase_tls" if door == "hbase_masters" else "zookeeper_tls"
    settings = Settings(
        **{door: f"127.0.0.1:{port}", switch: True, **own},  # type: ignore[arg-type]
        operation_timeout_ms=BOUND_MS,
        connect_timeout_ms=BOUND_MS // 4,
    )
    with (
        contextlib.closing(open_store(settings)) as store,
        pytest.raises(StoreUnavailableError) as caught,
    ):
        store.tables.list()
    assert caught.value.outcome is Outcome.NOT_APPLIED
