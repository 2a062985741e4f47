"""``python -m tests.bench.members``: members of a group in a process of their own.

It takes commands as lines of JSON, and answers each with one: ``{"do": "join", "members": [...]}``,
``{"do": "leave", "members": [...]}``, ``{"do": "report"}``. An answer to the last has what happened
since: how many requests went to ZooKeeper besides pings, and each partition that a member began or
ended with, at what time of `time.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from kazoo.client import KazooClient

from hqueue import Settings
from hqueue.groups.assignors import assign_sticky
from hqueue.groups.member import GroupMember
from hqueue.groups.paths import GroupPaths
from hqueue.metadata import PartitionKey
from hqueue.zookeeper import ZooKeeperStore

__all__ = ["BEGAN", "ENDED", "QUEUE"]

QUEUE = "bench"
BEGAN, ENDED = "began", "ended"


class Participant:
    """A member, and a thread that does what a consumer's does: it gives up what it is asked for.

    Args:
        settings: where ZooKeeper is.
        paths: the group's.
        name: the member's.
        partitions: how many there are.
        events: gets a time, what happened, the member and the partition.
    """

    def __init__(
        self,
        settings: Settings,
        paths: GroupPaths,
        name: str,
        partitions: int,
        events: list[tuple[float, str, str, int]],
    ) -> None:
        self._name = name
        self._events = events
        self._noticed = threading.Event()
        self._closed = False
        self._store = ZooKeeperStore(settings)
        self._member = GroupMember(
            self._store,
            paths,
            name,
            {QUEUE: 1},
            assignor=assign_sticky,
            on_change=self._noticed.set,
        )
        self._member.join()
        self._member.see_partitions(
            dict.fromkeys(PartitionKey(QUEUE, number) for number in range(partitions))
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._closed = True
        self._noticed.set()
        self._thread.join()
        for key in self._member._claiming.owned:
            self._note(ENDED, key)
        self._member.close()
        self._store.close()

    def _run(self) -> None:
        while not self._closed:
            self._noticed.wait()
            self._noticed.clear()
            changes = self._member.changes()
            for key in changes.assigned:
                self._note(BEGAN, key)
            for key in changes.revoked | changes.lost:
                self._note(ENDED, key)
            if changes.revoked:
                self._member.release(changes.revoked)

    def _note(self, what: str, key: PartitionKey) -> None:
        self._events.append((time.monotonic(), what, self._name, key.partition))


def main() -> None:
    zookeeper, root, group, partitions, session_ms = sys.argv[1:]
    settings = Settings(
        zookeeper=zookeeper, zookeeper_root=root, zookeeper_session_timeout_ms=int(session_ms)
    )
    paths = GroupPaths(root, group)
    events: list[tuple[float, str, str, int]] = []
    requests = 0
    sent = KazooClient._call

    def call(client: KazooClient, request: Any, answer: Any) -> Any:
        nonlocal requests
        requests += 1
        return sent(client, request, answer)

    KazooClient._call = call  # Pings don't come this way.
    members: dict[str, Participant] = {}
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        if command["do"] == "join":
            for name in command["members"]:
                members[name] = Participant(settings, paths, name, int(partitions), events)
        elif command["do"] == "leave":
            for name in command["members"]:
                members.pop(name).leave()
        else:
            count = len(events)
            answer = {"requests": requests, "events": events[:count]}
            del events[:count]
        print(json.dumps(answer), flush=True)
    for member in members.values():
        member.leave()


if __name__ == "__main__":
    main()
