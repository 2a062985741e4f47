"""Hubs over real stores: what was published is there once and in order, whatever hubs end how."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import hqueue
from hqueue import local
from tests.support.backends import Backend
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

from .hub_processes import HubProcess, hub_environment

WAIT_S = 240.0
TOPICS = [f"t/{number}" for number in range(6)]

pytestmark = pytest.mark.parametrize("store", ["zookeeper", "hbase"])


class Publisher:
    """Publishes numbers to every topic in turn, until it is told to stop. What was acknowledged is
    kept, and what may have been applied.
    """

    def __init__(self, client: hqueue.HubClient) -> None:
        self._client = client
        self._stopping = threading.Event()
        self.acknowledged: dict[str, list[tuple[int, int]]] = {topic: [] for topic in TOPICS}
        self.unknown = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def rounds(self) -> int:
        return min(map(len, self.acknowledged.values()))

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            for topic in TOPICS:
                try:
                    at = self._client.topic(topic).publish(b"%d" % number)
                except hqueue.HubUnavailableError:
                    self.unknown += 1
                else:
                    self.acknowledged[topic].append((int(at), number))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


class NumberedPublisher:
    """Publishes its own numbers to a topic, each until it is acknowledged."""

    def __init__(self, client: hqueue.HubClient) -> None:
        self._client = client
        self._stopping = threading.Event()
        self.acknowledged = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            number = self.acknowledged + 1
            with contextlib.suppress(hqueue.HubUnavailableError):
                self._client.topic("numbered").publish_idempotent(
                    [b"%d" % number], sequence_number=number
                )
                self.acknowledged = number

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def check(client: hqueue.Client, queue: str, publisher: Publisher) -> None:
    """Every acknowledged message lies in its topic's ranges, once, and in order."""
    messages = list(client.queue(queue).scan())
    with client.topic_metadata(queue) as metadata:
        for topic in TOPICS:
            found = metadata.persistence.read_topic_persistence_info(topic).result(WAIT_S)
            assert found is not None
            ranges = found.value.ranges
            assert all(each.last is not None for each in ranges[:-1])
            within = sorted(
                (int(message.id), int(message.value))
                for message in messages
                if message.topic == topic
                for each in ranges
                if each.partition == message.partition
                and each.first <= message.id
                and (each.last is None or message.id <= each.last)
            )
            acknowledged = publisher.acknowledged[topic]
            assert acknowledged == sorted(acknowledged), "IDs grow as the numbers do"
            assert set(acknowledged) <= set(within), "nothing is lost"
            assert len(within) <= len(acknowledged) + publisher.unknown
            assert len(within) == sum(message.topic == topic for message in messages)


@pytest.fixture
def queue(make_queue: Callable[..., hqueue.Queue]) -> str:
    return make_queue(3).name


def test_hubs_that_come_and_go_in_order_lose_nothing_and_keep_the_order(
    backend: Backend, client: hqueue.Client, queue: str, store: str
) -> None:
    with contextlib.ExitStack() as stack:

        def start() -> HubThread:
            connected = stack.enter_context(backend.connect(metadata_store=store))
            return stack.enter_context(HubThread(connected, queue))

        hubs = [start() for _ in range(3)]
        addresses = [hub.address for hub in hubs]
        seen = stack.enter_context(backend.connect(metadata_store=store))
        with hqueue.connect_hubs(addresses, queue=queue) as published_by:
            publisher = Publisher(published_by)
            wait_for(lambda: publisher.rounds >= 5, "messages are published", timeout_s=WAIT_S)
            owned = [hub.owns(queue) for hub in hubs]
            assert set().union(*owned) == set(TOPICS)
            hubs[0].terminate()
            before = publisher.rounds
            wait_for(lambda: publisher.rounds >= before + 5, "it goes on", timeout_s=WAIT_S)
            for topic in TOPICS:
                hubs[1].hosted(queue).topics.abandon(topic)
            before = publisher.rounds
            wait_for(lambda: publisher.rounds >= before + 5, "it goes on", timeout_s=WAIT_S)
            publisher.stop()
        assert [hub.failure for hub in hubs] == [None] * 3
        check(seen, queue, publisher)


@pytest.fixture
def environment(
    server: local.LocalServer, server_environment: dict[str, str], store: str
) -> dict[str, str]:
    return hub_environment(server, server_environment, store)


def test_a_hub_that_is_killed_is_taken_over_and_one_that_stood_still_is_fenced(
    server: local.LocalServer,
    environment: dict[str, str],
    queue: str,
    store: str,
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as stack:
        hubs = [stack.enter_context(HubProcess(queue, environment)) for _ in range(3)]
        seen = stack.enter_context(hqueue.connect(server.settings(metadata_store=store)))
        metadata = stack.enter_context(seen.topic_metadata(queue))

        def owners() -> dict[str, str]:
            found = {
                topic: metadata.ownership.read_owner_info(topic).result(WAIT_S) for topic in TOPICS
            }
            return {topic: str(each.value.address) for topic, each in found.items() if each}

        wait_for(lambda: len(metadata.hubs.list()) == 3, "hubs are there", timeout_s=WAIT_S)
        health = json.loads(hubs[0].page("/health") or b"{}")
        assert health["status"] == "serving"
        client = stack.enter_context(
            hqueue.connect_hubs(
                ",".join(hub.address for hub in hubs),
                queue=queue,
                operation_timeout_ms=int(WAIT_S * 1e3),
            )
        )
        publisher = Publisher(client)
        stack.callback(publisher.stop)
        numbering = stack.enter_context(
            hqueue.connect_hubs(
                ",".join(hub.address for hub in hubs),
                queue=queue,
                publisher="numbering",
                operation_timeout_ms=5_000,
            )
        )
        numbered = NumberedPublisher(numbering)
        stack.callback(numbered.stop)
        wait_for(lambda: publisher.rounds >= 3, "messages are published", timeout_s=WAIT_S)
        by_address = {hub.address: hub for hub in hubs}

        def pop_owner() -> HubProcess:
            """The hub that owns a topic, which may change hands at any time."""
            address = wait_for(lambda: owners().get(TOPICS[0]), "it is owned", timeout_s=WAIT_S)
            return by_address.pop(address)

        killed = pop_owner()
        killed.kill()
        before = publisher.rounds
        wait_for(lambda: publisher.rounds >= before + 3, "others took over", timeout_s=WAIT_S)
        still = pop_owner()
        still.signal(signal.SIGSTOP)
        # The call under way waits for the hub's answer, which comes when it goes on.
        wait_for(
            lambda: still.address not in map(str, metadata.hubs.list()),
            "its session is over",
            timeout_s=WAIT_S,
        )
        (last,) = by_address.values()
        with hqueue.connect_hubs(last.address, queue=queue) as other:
            taken = wait_for(
                lambda: _published(other, publisher), "it was taken over", timeout_s=WAIT_S
            )
        still.signal(signal.SIGCONT)
        before = publisher.rounds
        wait_for(lambda: publisher.rounds >= before + 3, "it goes on", timeout_s=WAIT_S)
        done = numbered.acknowledged
        wait_for(lambda: numbered.acknowledged > done, "numbers go on, too", timeout_s=WAIT_S)
        publisher.stop()
        numbered.stop()
        assert numbering.topic("numbered").last_sequence_number() == numbered.acknowledged
        with seen.queue(queue).scan_topic("numbered") as scanner:
            stored = [int(message.value) for message in scanner]
        assert stored == list(range(1, numbered.acknowledged + 1))
        publisher.acknowledged[TOPICS[0]].append((taken, 0))
        publisher.acknowledged[TOPICS[0]].sort()
        assert b"hqueue_hub_takeovers_total" in (last.page("/metrics") or b"")
        check_ordered = [number for _, number in publisher.acknowledged[TOPICS[0]] if number]
        assert check_ordered == sorted(check_ordered)
        check(seen, queue, publisher)
        assert last.terminate() == 0
        assert last.address not in owners().values(), "what it owned is released"


def _published(client: hqueue.HubClient, publisher: Publisher) -> int | None:
    try:
        return int(client.topic(TOPICS[0]).publish(b"0"))
    except hqueue.HubUnavailableError:
        publisher.unknown += 1
        return None
