"""Callers over their quotas, at a hub and at its Thrift API: each message once and in order."""

from __future__ import annotations

import threading

import hqueue
from hqueue import Message
from tests.support.backends import Backend
from tests.support.hubs import HubThread

WAIT_S = 60.0
THREADS, EACH = 4, 15


def test_callers_that_share_a_quota_wait_and_each_message_is_there_once(
    backend: Backend, client: hqueue.Client
) -> None:
    client.create_queue("q", partitions=2)
    quotas = "anonymous:calls=20 bytes_in=200000"
    with (
        backend.connect() as own,
        HubThread(own, "q", api_port=0, quotas=quotas) as hub,
        hqueue.connect_hubs(hub.address, queue="q", operation_timeout_ms=60_000) as hubs,
    ):

        def publish(thread: int) -> None:
            for number in range(EACH):
                hubs.topic(f"t{thread}").publish(b"%d" % number)
            for number in range(EACH):
                hubs.queue().put(Message("put", b"%d" % (thread * EACH + number)))

        threads = [threading.Thread(target=publish, args=(each,)) for each in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        refused = [sum(port.refused.values()) for port in hub.hub._quotas.ports]
        assert min(refused) > 0, "both ports refused calls"
    values: dict[str, list[int]] = {}
    with client.queue("q").scan() as scanner:
        for message in scanner:
            values.setdefault(message.topic, []).append(int(message.value))
    assert sorted(values.pop("put")) == list(range(THREADS * EACH))
    assert values == {f"t{thread}": list(range(EACH)) for thread in range(THREADS)}
