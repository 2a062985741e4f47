"""What stands on the log, over an HBase without gateways: workers, groups, topics and hubs. Nothing
here knows a gateway's address, the processes neither.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hqueue
from hqueue import Consumer, Subscription
from hqueue.errors import BadVersionError
from hqueue.metadata.managers import LogRange, TopicPersistenceInfo, Versioned
from hqueue.metadata.ports import NEW
from tests.support.consuming import put_numbered, take, values
from tests.support.hubs import HubThread
from tests.support.native_hbase import NativeHBase
from tests.support.waiting import wait_for

from .pushing import SESSION_MS, Received, WorkerProcess, put_numbers

MakeQueue = Callable[..., hqueue.Queue]
Connect = Callable[..., hqueue.Client]


@pytest.fixture
def connect(native_hbase: NativeHBase, queue_name: str) -> Connect:
    """Opens clients whose workers, groups and hubs no other test sees."""

    def connect_one(**settings: object) -> hqueue.Client:
        given = {
            "zookeeper_root": f"/{queue_name}",
            "zookeeper_session_timeout_ms": SESSION_MS,
            **settings,
        }
        return native_hbase.connect(**given)

    return connect_one


@pytest.fixture
def client(connect: Connect) -> Iterator[hqueue.Client]:
    with connect() as connected:
        assert (connected.settings.hbase, connected.settings.gateways) == ("native", ())
        yield connected


@pytest.fixture
def delete_beside(client: hqueue.Client) -> Callable[[str], object]:
    """Deletes queues; not beside the next test, for that may have another server."""

    def delete(name: str) -> None:
        client.disable_queue(name)
        client.delete_queue(name)

    return delete


@pytest.fixture(params=["zookeeper", "masters"])
def environment(
    request: pytest.FixtureRequest,
    native_hbase: NativeHBase,
    client: hqueue.Client,
    tmp_path: Path,
) -> dict[str, str]:
    """Of a process that finds no local server, and so no gateways; and HBase by ZooKeeper, or by
    its master.
    """
    settings = tmp_path / "hqueue.toml"
    settings.touch()
    by_masters = {"HQUEUE_HBASE_MASTERS": native_hbase.master}
    return {
        **(by_masters if request.param == "masters" else {}),
        **{name: value for name, value in os.environ.items() if not name.startswith("HQUEUE_")},
        **native_hbase.environment(),
        "HQUEUE_LOCAL_HOME": str(tmp_path),
        "HQUEUE_CONFIG": str(settings),
        "HQUEUE_ZOOKEEPER": client.settings.zookeeper,
        "HQUEUE_ZOOKEEPER_ROOT": client.settings.zookeeper_root,
        "HQUEUE_ZOOKEEPER_SESSION_TIMEOUT_MS": str(SESSION_MS),
    }


def test_a_worker_delivers_what_was_there_and_what_comes(
    client: hqueue.Client, make_queue: MakeQueue, environment: dict[str, str]
) -> None:
    queue = make_queue(3)
    old = put_numbers(queue, range(12))
    got = Received()
    with WorkerProcess(environment, client) as worker, queue.subscriber(Subscription("s"), got):
        later = put_numbers(queue, range(12, 24))
        got.await_values(old + later)
        assert got.check_order() == 0
        assert worker.owns(queue) == {0, 1, 2}
        assert worker.terminate() == 0


def test_a_group_shares_a_queue_and_the_next_one_goes_on_where_it_committed(
    connect: Connect, make_queue: MakeQueue, queue_name: str
) -> None:
    queue = make_queue(4)
    put_numbered(queue, 100)
    with contextlib.ExitStack() as stack:
        members = [
            stack.enter_context(
                contextlib.closing(
                    Consumer([queue.name], group=queue_name, client=stack.enter_context(connect()))
                )
            )
            for _ in range(2)
        ]
        assert sorted(values(take(100, *members))) == list(range(100))
    put_numbered(queue, 20, first=100)
    with (
        connect() as other,
        contextlib.closing(Consumer([queue.name], group=queue_name, client=other)) as last,
    ):
        assert sorted(values(take(20, last))) == list(range(100, 120))


def test_what_is_known_of_topics_lies_in_hbase(connect: Connect, make_queue: MakeQueue) -> None:
    queue = make_queue(1).name
    info = TopicPersistenceInfo([LogRange(0, hqueue.MessageID(1), None, 1)])
    with connect(metadata_store="hbase") as first, first.topic_metadata(queue) as metadata:
        persistence = metadata.persistence
        created = persistence.write_topic_persistence_info("t", info, NEW).result(60)
        with pytest.raises(BadVersionError):
            persistence.write_topic_persistence_info("t", info, NEW).result(60)
    with connect(metadata_store="hbase") as second, second.topic_metadata(queue) as metadata:
        found = metadata.persistence.read_topic_persistence_info("t").result(60)
        assert found is not None
        assert found == Versioned(info, created)


@pytest.mark.parametrize("store", ["zookeeper", "hbase"])
def test_what_hubs_publish_is_there_in_order_after_one_of_them_ended(
    connect: Connect, make_queue: MakeQueue, store: str
) -> None:
    queue = make_queue(2)
    with contextlib.ExitStack() as stack:
        hubs = [
            stack.enter_context(
                HubThread(stack.enter_context(connect(metadata_store=store)), queue.name)
            )
            for _ in range(2)
        ]
        publisher = stack.enter_context(
            hqueue.connect_hubs([hub.address for hub in hubs], queue=queue.name)
        )
        ids = [publisher.topic("t").publish(b"%d" % number) for number in range(20)]
        owner = wait_for(lambda: [hub for hub in hubs if hub.owns(queue.name)], "it is owned")[0]
        owner.terminate()
        ids += [publisher.topic("t").publish(b"%d" % number) for number in range(20, 40)]
        assert ids == sorted(ids)
        assert [hub.failure for hub in hubs] == [None, None]
    read = sorted((m.id, m.value) for m in queue.scan(topics=["t"]))
    assert read == list(zip(ids, (b"%d" % number for number in range(40)), strict=True))
