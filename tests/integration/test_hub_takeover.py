"""Topics of a hub that ended without a word are taken over, by one of the others each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import hqueue
from hqueue import local
from hqueue.metadata import Address
from hqueue.metadata.managers import HubInfo, TopicMetadata, Verdict
from tests.integration.running import Program
from tests.support import zookeeper_faults
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.servers,
    pytest.mark.thorough("waits for the end of a session; in memory that is in `make check`"),
    pytest.mark.parametrize("store", ["zookeeper", "hbase"]),
]

WAIT_S = 120.0
SESSION_MS = 4_000
TOPICS = [f"t/{number}" for number in range(20)]


class Hub:
    """A hub of this process, which is available."""

    def __init__(self, client: hqueue.Client, queue: str, number: int) -> None:
        self.client = client
        self.info = HubInfo(Address("127.0.0.1", number), uuid.uuid4().hex)
        self.metadata: TopicMetadata = client.topic_metadata(queue)
        self.metadata.hubs.register(self.info)

    def acquire_all(self) -> list[Verdict]:
        asked = [self.metadata.election.acquire(topic, self.info) for topic in TOPICS]
        return [future.result(WAIT_S) for future in asked]


OpenHub = Callable[..., Hub]


@pytest.fixture
def open_hub(server: local.LocalServer, queue_name: str, store: str) -> Iterator[OpenHub]:
    """Hubs of a queue, each with a client of its own."""
    clients: list[hqueue.Client] = []

    def open_hub(number: int, **settings: object) -> Hub:
        made = server.settings(
            metadata_store=store, zookeeper_session_timeout_ms=SESSION_MS, **settings
        )
        clients.append(hqueue.connect(made))
        return Hub(clients[-1], queue_name, number)

    yield open_hub
    for client in clients:
        client.close()


def take_over(hubs: list[Hub], before: str) -> list[Verdict]:
    """Let all of them acquire all topics at once, until none is that incarnation's; who has each.

    Each topic has one owner at every moment, whatever they ask at once.
    """

    def all_taken() -> list[Verdict] | None:
        with ThreadPoolExecutor(len(hubs)) as pool:
            verdicts = [*pool.map(Hub.acquire_all, hubs)]
        for of_topic in zip(*verdicts, strict=True):
            now = {each.owner.incarnation for each in of_topic} - {before}
            won = {each.owner.incarnation for each in of_topic if each.won}
            assert len(now) <= 1, "a topic has two owners"
            assert won <= now
        winners = [next((v for v in of if v.won), None) for of in zip(*verdicts, strict=True)]
        return [v for v in winners if v] if all(winners) else None

    return wait_for(all_taken, "all topics are taken over", timeout_s=WAIT_S)


@pytest.mark.parametrize("stands_still", [False, True], ids=["killed", "stands still"])
def test_topics_of_a_process_that_gives_no_sign_of_life_are_taken_over(
    open_hub: OpenHub,
    server_environment: dict[str, str],
    server: local.LocalServer,
    queue_name: str,
    store: str,
    *,
    stands_still: bool,
) -> None:
    others = [open_hub(4_081), open_hub(4_082)]
    environment = {
        **server_environment,
        "HQUEUE_GATEWAYS": str(server.gateways[0]),
        "HQUEUE_ZOOKEEPER": server.zookeeper,
        "HQUEUE_METADATA_STORE": store,
        "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
    }
    with Program("own_topics", queue_name, 4_080, *TOPICS, environment=environment) as first:
        first.await_ready()
        versions = [int(line) for line in first.lines(len(TOPICS))]
        asked = [hub.acquire_all() for hub in others]
        assert not any(verdict.won for verdicts in asked for verdict in verdicts)
        (before,) = {verdict.owner.incarnation for verdicts in asked for verdict in verdicts}
        if stands_still:
            with first.paused():
                taken = take_over(others, before)
            first.begin()
            owners = [verdict.owner.incarnation for verdict in taken]
            assert [*first.lines(len(TOPICS))] == [f"0 0 {owner}" for owner in owners]
    if not stands_still:  # It was killed by the end of the block.
        taken = take_over(others, before)
    if store == "hbase":  # On ZooKeeper they begin again with each owner.
        assert not {verdict.version for verdict in taken} & set(versions)


def test_topics_of_a_session_that_expired_are_taken_over_and_stay_so(
    open_hub: OpenHub, server: local.LocalServer, store: str
) -> None:
    with zookeeper_faults.zookeeper_proxy(server.zookeeper) as proxy:
        first = open_hub(4_080, zookeeper=f"127.0.0.1:{proxy.port}")
        others = [open_hub(4_081), open_hub(4_082)]
        owned = first.acquire_all()
        assert all(verdict.won for verdict in owned)
        with zookeeper_faults.cut(proxy):
            taken = take_over(others, first.info.incarnation)
        hubs = first.metadata.hubs
        wait_for(lambda: hubs.is_available(first.info), "it is available again", timeout_s=WAIT_S)
        again = first.acquire_all()
        assert not any(verdict.won for verdict in again)
        assert [verdict.owner for verdict in again] == [verdict.owner for verdict in taken]
        for topic, verdict in zip(TOPICS, owned, strict=True):
            assert not first.metadata.election.release(topic, verdict).result(WAIT_S)
        if store == "hbase":
            assert not {each.version for each in taken} & {each.version for each in owned}
        first.client.close()
