"""With topics given, only those leave HBase: seen in the bytes between client and gateway."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

import hqueue
from hqueue import Message, local
from tests.support.proxy import Proxies
from tests.support.raw import RawTables

MakeQueue = Callable[..., hqueue.Queue]


def test_bodies_of_other_topics_never_leave_hbase(
    server: local.LocalServer, make_queue: MakeQueue
) -> None:
    queue = make_queue(2)
    for n in range(20):
        batch = [Message("wanted", b"w%d" % n), Message("other", os.urandom(50_000))]
        queue.put(batch, partition=n % 2)
    with Proxies(server) as proxies, hqueue.connect(proxies.settings()) as client:
        behind = client.queue(queue.name)
        for options in (
            {},
            {"merge_sorted": True},
            {"partition": 0},
            {"follow": True, "idle_ms_max": 1},
        ):
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
            batch = [Message("other", os.urandom(50_000)), Message("wanted", b"%d" % n)]
            written = queue.put(batch, partition=n % 2)
            message = follower.next()
            assert message is not None
            assert (message.id, message.value) == (written[1], b"%d" % n)
        follower.close()
        assert proxies.answer_bytes < 200_000


@pytest.mark.parametrize("compression_type", ["zstd", "none"])
def test_what_travels_and_lies_there_is_compressed_unless_that_is_off(
    server: local.LocalServer, make_queue: MakeQueue, raw: RawTables, compression_type: str
) -> None:
    queue = make_queue()
    text = [Message("t", b'{"user": "u%05d", "status": 200}' % n) for n in range(10_000)]
    size = sum(len(message.value) for message in text)
    with (
        Proxies(server) as proxies,
        hqueue.connect(proxies.settings(compression_type=compression_type)) as client,
    ):
        client.queue(queue.name).put(text)
        (row,) = (cells for cells in raw.rows(queue.name).values() if b"message:t" in cells)
        proxies.reset()
        # The reader has another setting, and needs none.
        with hqueue.connect(proxies.settings(compression_type="none")) as reading:
            assert [m.value for m in reading.queue(queue.name).scan()] == [m.value for m in text]
    small = compression_type == "zstd"
    assert (len(row[b"message:t"]) < size / 2) == small
    assert (proxies.answer_bytes < size / 2) == small
