"""Where a subscriber says that it is."""

from __future__ import annotations

from hqueue import Status, Subscription
from tests.support.backends import MemoryBackend


def test_without_a_host_it_is_announced_where_it_reaches_zookeeper_from() -> None:
    with MemoryBackend().connect(zookeeper="127.0.0.1:2181") as client:
        queue = client.create_queue("q", partitions=1)
        with queue.subscriber(Subscription("s"), lambda messages: Status.DONE) as subscriber:
            assert subscriber.address.host == "127.0.0.1"
            (presence,) = client.coordination.subscriptions.list("q").values()
            assert presence is not None
            assert presence.address == subscriber.address
