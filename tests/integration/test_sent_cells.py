"""With topics given, only those leave HBase: seen in the bytes between client and gateway."""

from __future__ import annotations

from collections.abc import Callable

import hqueue
from hqueue import Message, local

from .proxy import Proxies

MakeQueue = Callable[..., hqueue.Queue]


def test_bodies_of_other_topics_never_leave_hbase(
    server: local.LocalServer, make_queue: MakeQueue
) -> None:
    queue = make_queue(2)
    for n in range(20):
        batch = [Message("wanted", b"w%d" % n), Message("other", b"o" * 50_000)]
        queue.put(batch, partition=n % 2)
    with Proxies(server) as proxies, hqueue.connect(proxies.settings()) as client:
        behind = client.queue(queue.name)
        for options in ({}, {"by_id": True}, {"partition": 0}, {"follow": True, "idle_ms_max": 1}):
            proxies.reset()
            values = [m.value for m in behind.scan(topics=["wanted"], **options)]  # type: ignore[arg-type]
            assert len(values) == (10 if "partition" in options else 20)
            assert proxies.answer_bytes < 50_000
        proxies.reset()
        assert len(list(behind.scan())) == 40
        assert proxies.answer_bytes > 1_000_000


def test_a_follower_asks_for_its_topics_only(
    server: local.LocalServer, make_queue: MakeQueue
) -> None:
    queue = make_queue(2)
    with Proxies(server) as proxies, hqueue.connect(proxies.settings()) as client:
        follower = client.queue(queue.name).scan(topics=["wanted"], follow=True)
        for n in range(30):
            batch = [Message("other", b"o" * 50_000), Message("wanted", b"%d" % n)]
            written = queue.put(batch, partition=n % 2)
            message = follower.next()
            assert message is not None
            assert (message.id, message.value) == (written[1], b"%d" % n)
        follower.close()
        assert proxies.answer_bytes < 200_000
