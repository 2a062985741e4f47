"""What goes on in the background for the members of groups needs no thread of each."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import hqueue
from hqueue import Client, Message, Settings
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.runtime.loop import background
from hqueue.zookeeper import ZooKeeperCoordination
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.memory_store import MemoryStore
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.waiting import wait_for

OF_A_SESSION = {"hqueue-session": 1, "_thread_worker": 2, "zk_loop": 1}
"""The one that calls kazoo, and kazoo's own."""
OF_THE_SERVER = "memory-zookeeper"
PASSING = ("hqueue-loop-call", "hqueue-intake")
"""They end when there was nothing to do for a moment."""


def threads() -> Counter[str]:
    """The names of those that stay."""
    names = [
        thread.name.rpartition("(")[2].rstrip(")")
        for thread in threading.enumerate()
        if not thread.name.startswith((OF_THE_SERVER, *PASSING))
    ]
    return Counter(names)


def take(consumers: Sequence[hqueue.Consumer]) -> bool:
    """Poll; whether two of them have a partition."""
    for consumer in consumers:
        consumer.poll(20)
    return sorted(len(consumer.assignment()) for consumer in consumers) == [0, 1, 1]


def test_a_consumer_has_the_threads_of_its_session_and_no_others() -> None:
    assert background() is not None
    with MemoryZooKeeper() as server:
        settings = Settings(zookeeper=f"127.0.0.1:{server.port}", notify_workers=False)
        store = MemoryStore(MemoryCluster(SYSTEM_CLOCK), settings, SYSTEM_CLOCK)
        client = Client(settings, store, lambda loop: ZooKeeperCoordination(settings, loop=loop))
        client.create_queue("q", partitions=2)
        client.queue("q").put(Message("t", b"v"), partition=1)
        before = threads()
        consumers = [hqueue.Consumer("q", group="g", client=client) for _ in range(3)]
        try:
            wait_for(lambda: take(consumers), "they share the partitions")
            consumers[0].commit_async()
            of_three = {name: 3 * count for name, count in OF_A_SESSION.items()}
            wait_for(lambda: threads() - before == of_three, "only those of their sessions stay")
        finally:
            for consumer in consumers:
                consumer.close()
            client.close()
        wait_for(lambda: not threads() - before, "none stays behind")
