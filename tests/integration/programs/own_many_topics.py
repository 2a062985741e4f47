"""A hub that owns many topics: ``own_many_topics.py QUEUE NUMBER TOPICS``.

They are there on ZooKeeper. It writes itself as the owner of each, as an election that is won does;
says that it is ready; and stays until it is killed.
"""

from __future__ import annotations

import sys
import uuid

from hqueue import Settings
from hqueue.metadata import Address
from hqueue.metadata.fields import FieldRecords
from hqueue.metadata.managers import HubInfo, open_topic_metadata
from hqueue.metadata.ports import NEW
from hqueue.zookeeper import ZooKeeperCoordination

WAIT_S = 300.0
TOGETHER = 1_000


def no_rows() -> FieldRecords:
    raise AssertionError("all is on ZooKeeper")


def main() -> None:
    queue, number, topics = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    coordination = ZooKeeperCoordination(Settings.load())
    metadata = open_topic_metadata(
        queue,
        session=coordination.store,
        root=coordination.paths.root,
        first="zookeeper",
        rows=no_rows,
        wait_s=WAIT_S,
    )
    hub = HubInfo(Address("127.0.0.1", number), uuid.uuid4().hex)
    metadata.hubs.register(hub)
    for first in range(0, topics, TOGETHER):
        written = [
            metadata.ownership.write_owner_info(f"topic-{number}", hub, NEW)
            for number in range(first, min(first + TOGETHER, topics))
        ]
        for each in written:
            each.result(WAIT_S)
    coordination.confirm()
    print("ready", flush=True)
    sys.stdin.read()


main()
