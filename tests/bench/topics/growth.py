"""What so many topics cost: to make, to keep, and to take over from a hub that is killed."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import hqueue
from hqueue import Address, local
from hqueue.metadata.managers import Hubs as AvailableHubs
from tests.support.hub_subscribers import Subscriber

from ..measure import await_calm
from .hubs import SESSION_MS, Hubs, Topics

__all__ = ["STORES", "Figures", "measure"]

STORES = ("zookeeper", "hbase")
PARTITIONS = 6
IDLE_S = 30.0
TAKEN_MAX = 10_000
GONE_S_MAX = 60.0
ASKED_MAX = 5_000


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was measured. Of hubs, what the one that takes most takes.

    Args:
        store: where metadata lies.
        topics: how many there were, with a subscription each.
        made_a_second: topics made, owned and subscribed to.
        made_hub_ms: processor time of all hubs for each of them.
        idle_core_percent: of a core, while nothing happens.
        rss_mib: memory then.
        owned_max: topics of a hub.
        on_demand_ms: from the end of the killed hub's session until a message to one of its topics,
            published when it was killed, was there.
        taken: topics of the killed hub that were called for then.
        taken_s: until they were owned, and their subscriptions attached.
        taken_hub_ms: processor time of all hubs for each of them.
    """

    store: str
    topics: int
    made_a_second: float
    made_hub_ms: float
    idle_core_percent: float
    rss_mib: float
    owned_max: int
    on_demand_ms: float
    taken: int
    taken_s: float
    taken_hub_ms: float


def measure(server: local.LocalServer, store: str, count: int) -> Figures:
    """The figures for so many topics."""
    name = f"bench-topics-{store}-{count}"
    with (
        hqueue.connect(server.settings(metadata_store=store)) as client,
        contextlib.ExitStack() as stack,
    ):
        client.create_queue(name, partitions=PARTITIONS)
        hubs = Hubs(server, client, name)
        stack.callback(hubs.close)
        addresses = sorted(hubs.addresses())
        subscriber = stack.enter_context(
            Subscriber(name, lambda: [*map(Address.parse, addresses)], "s")
        )
        topics = Topics(name, addresses, subscriber)
        stack.callback(topics.close)
        before = hubs.used_s()
        made_s = topics.subscribe([f"t{number}" for number in range(count)])
        made_ms = _spent_ms(before, hubs.used_s())
        await_calm()
        before = hubs.used_s()
        threading.Event().wait(IDLE_S)
        idle_ms = max(spent - before[each] for each, spent in hubs.used_s().items()) * 1e3
        rss_bytes = max(hubs.rss_bytes())
        owned = _owned(client, name, addresses, [*topics.owners])
        victim = max(addresses, key=lambda each: len(owned[each]))
        others = owned[victim][:TAKEN_MAX]
        on_demand_ms = _take_over(client, hubs, topics, victim, owned[victim])
        before = hubs.used_s()
        taken_s = topics.subscribe(others)
        return Figures(
            store=store,
            topics=count,
            made_a_second=count / made_s,
            made_hub_ms=made_ms / count,
            idle_core_percent=idle_ms / IDLE_S / 10,
            rss_mib=rss_bytes / 2**20,
            owned_max=len(owned[victim]),
            on_demand_ms=on_demand_ms,
            taken=len(others),
            taken_s=taken_s,
            taken_hub_ms=_spent_ms(before, hubs.used_s()) / max(1, len(others)),
        )


def _owned(
    client: hqueue.Client, queue: str, hubs: Sequence[str], topics: Sequence[str]
) -> dict[str, list[str]]:
    """The topics of each hub, by the records of their owners: some were left to others since."""
    owned: dict[str, list[str]] = {each: [] for each in hubs}
    with client.topic_metadata(queue) as metadata:
        for first in range(0, len(topics), ASKED_MAX):
            some = topics[first : first + ASKED_MAX]
            asked = [metadata.ownership.read_owner_info(topic) for topic in some]
            for topic, each in zip(some, asked, strict=True):
                found = each.result()
                if found is not None:
                    owned[str(found.value.address)].append(topic)
    return owned


def _take_over(
    client: hqueue.Client, hubs: Hubs, topics: Topics, victim: str, owned: Sequence[str]
) -> float:
    """Kill a hub, and call for one of its topics; how many milliseconds after the end of its
    session that was answered.
    """

    def publish() -> float:
        # One that it has not left to others meanwhile.
        read = metadata.ownership.read_owner_info
        found = ((topic, read(topic).result()) for topic in reversed(owned))
        topics.publish(next(topic for topic, at in found if at and str(at.value.address) == victim))
        return time.monotonic()

    with client.topic_metadata(topics.queue) as metadata, ThreadPoolExecutor(1) as caller:
        with _gone(metadata.hubs, victim) as gone:
            hubs.kill(victim)
            answered = caller.submit(publish)
            ended_s = gone()
        return (answered.result() - ended_s) * 1e3


@contextlib.contextmanager
def _gone(hubs: AvailableHubs, address: str) -> Iterator[Callable[[], float]]:
    """Waits until a hub is not available any more; says when that was."""
    ended: list[float] = []
    is_gone = threading.Event()

    def look(found: object) -> None:
        assert isinstance(found, dict)
        if not is_gone.is_set() and Address.parse(address) not in found:
            ended.append(time.monotonic())
            is_gone.set()

    def wait() -> float:
        assert is_gone.wait(GONE_S_MAX + SESSION_MS / 1e3)
        return ended[0]

    watch = hubs.watch(look)
    try:
        yield wait
    finally:
        watch.close()


def _spent_ms(before: dict[str, float], after: dict[str, float]) -> float:
    """What hubs that live took meanwhile."""
    return sum(spent - before[each] for each, spent in after.items()) * 1e3
