"""Subscriptions and puts of clients that know hubs alone outlive hubs that die and that stand
still.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import hqueue
from hqueue import MessageID, ReceivedMessage, local
from tests.support.waiting import wait_for

from .hub_processes import HubProcess, hub_environment

pytestmark = pytest.mark.parametrize(
    ("store", "hub_face"),
    [("zookeeper", "threads"), ("hbase", "threads"), ("zookeeper", "asyncio")],
    indirect=["hub_face"],
)

WAIT_S = 240.0
EACH = 20


class Numbers:
    """Publishes numbers to a topic, each until it is there, and has a subscription to it."""

    def __init__(self, client: hqueue.HubClient) -> None:
        self._client = client
        self.sent: list[bytes] = []
        self.came: list[ReceivedMessage] = []
        self.subscription = client.topic("t").subscribe("sub", self.came.extend)

    def publish(self) -> MessageID:
        """Publish some more; the last one's ID."""
        for _ in range(EACH):
            number = len(self.sent)
            self.sent.append(b"%d" % number)
            published = self._client.topic("t").publish_idempotent(
                self.sent[-1:], sequence_number=number
            )
        return published.last_id

    def await_all(self) -> None:
        """Wait until all have come, none is missing, and each came first in its order."""
        wait_for(
            lambda: self.came and self.came[-1].value == self.sent[-1],
            "the newest came",
            timeout_s=WAIT_S,
        )
        assert list(dict.fromkeys(each.value for each in self.came)) == self.sent


class Puts:
    """Puts numbers into the whole queue, one at a time, while other things happen."""

    def __init__(self, queue: Any) -> None:
        self.ids: list[MessageID] = []
        self._queue = queue
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._put, daemon=True)
        self._thread.start()

    def _put(self) -> None:
        while not self._ending.is_set():
            message = hqueue.Message("put", b"%d" % len(self.ids))
            self.ids.append(self._queue.put(message))

    def check(self, queue: hqueue.Queue) -> None:
        """End, and check that each number is in the log once, under the ID that its put gave."""
        self._ending.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        with queue.scan(topics=["put"]) as scanner:
            found = sorted((int(message.value), message.id) for message in scanner)
        assert found == list(enumerate(self.ids))


def test_a_subscription_goes_on_at_its_cursor_when_its_hub_is_killed_and_when_one_stood_still(
    server: local.LocalServer,
    server_environment: dict[str, str],
    make_queue: Callable[..., hqueue.Queue],
    store: str,
    hub_face: str,
) -> None:
    queue = make_queue(3).name
    environment = hub_environment(server, server_environment, store)
    with contextlib.ExitStack() as stack:
        hubs = [stack.enter_context(HubProcess(queue, environment)) for _ in range(3)]
        by_address = {hub.address: hub for hub in hubs}
        seen = stack.enter_context(hqueue.connect(server.settings(metadata_store=store)))
        metadata = stack.enter_context(seen.topic_metadata(queue))

        def cursor() -> MessageID:
            found = metadata.subscriptions.read_subscription_data("t", "sub").result(WAIT_S)
            assert found is not None
            assert found.value.state is not None
            return found.value.state.consumed

        def pop_owner() -> HubProcess:
            found = metadata.ownership.read_owner_info("t").result(WAIT_S)
            assert found is not None
            return by_address.pop(str(found.value.address))

        wait_for(lambda: len(metadata.hubs.list()) == 3, "hubs are there", timeout_s=WAIT_S)
        client = stack.enter_context(
            hqueue.connect_hubs(
                [hub.address for hub in hubs],
                queue=queue,
                publisher="me",
                operation_timeout_ms=int(WAIT_S * 1e3),
            )
        )
        numbers, puts = Numbers(client), Puts(client.queue())
        first = numbers.publish()
        numbers.await_all()
        wait_for(lambda: cursor() == first, "its cursor is stored", timeout_s=WAIT_S)
        came = len(numbers.came)

        pop_owner().kill()
        second = numbers.publish()
        numbers.await_all()
        assert all(each.id > first for each in numbers.came[came:]), "it goes on at its cursor"
        wait_for(lambda: cursor() == second, "its cursor is stored", timeout_s=WAIT_S)
        came = len(numbers.came)

        still = pop_owner()
        still.signal(signal.SIGSTOP)
        wait_for(
            lambda: still.address not in map(str, metadata.hubs.list()),
            "its session is over",
            timeout_s=WAIT_S,
        )
        (last,) = by_address.values()
        with hqueue.connect_hubs(last.address, queue=queue) as other:
            other.topic("t").publish(b"other")
            numbers.sent.append(b"other")
        still.signal(signal.SIGCONT)
        numbers.publish()
        numbers.await_all()
        assert all(each.id > second for each in numbers.came[came:]), "it goes on at its cursor"
        assert not numbers.subscription.ended
        with seen.queue(queue).scan_topic("t") as scanner:
            assert [message.value for message in scanner] == numbers.sent
        puts.check(seen.queue(queue))
