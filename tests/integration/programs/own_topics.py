"""A hub of its own process: ``own_topics.py QUEUE NUMBER TOPIC...``.

It becomes the topics' owner, prints the version of each, and says that it is ready. When it is let
go on it releases what it had, acquires the topics again, and prints of each whether it could, and
who owns the topic then.
"""

from __future__ import annotations

import contextlib
import sys
import time
import uuid

import hqueue
from hqueue.metadata import Address
from hqueue.metadata.managers import HubInfo

WAIT_S = 60.0


def main() -> None:
    queue, number, *topics = sys.argv[1:]
    with hqueue.connect() as client, client.topic_metadata(queue) as metadata:
        hub = HubInfo(Address("127.0.0.1", int(number)), uuid.uuid4().hex)
        metadata.hubs.register(hub)
        owned = {topic: metadata.election.acquire(topic, hub).result(WAIT_S) for topic in topics}
        assert all(verdict.won for verdict in owned.values())
        print("ready", flush=True)
        for verdict in owned.values():
            print(verdict.version, flush=True)
        if sys.stdin.readline() != "begin\n":
            return
        for topic, verdict in owned.items():
            released = metadata.election.release(topic, verdict).result(WAIT_S)
            ends = time.monotonic() + WAIT_S
            while time.monotonic() < ends:
                with contextlib.suppress(hqueue.StoreUnavailableError):  # Not available again yet.
                    again = metadata.election.acquire(topic, hub).result(WAIT_S)
                    break
            print(int(released), int(again.won), again.owner.incarnation, flush=True)


main()
