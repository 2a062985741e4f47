"""A process that subscribes by hubs, forks, and ends without closing anything:
``fork_subscribing.py <hub> <queue>``. Parent and child each get what is published to them, from one
client; the exit code says whether both did.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

import hqueue

BOUND_S = 60.0

client = hqueue.connect_hubs(sys.argv[1], queue=sys.argv[2])
came: list[bytes] = []


def take(messages: Sequence[hqueue.ReceivedMessage]) -> None:
    came.extend(each.value for each in messages)


def await_own(topic: str, value: bytes) -> None:
    client.topic(topic).publish(value)
    ends_s = time.monotonic() + BOUND_S
    while came[-1:] != [value]:
        assert time.monotonic() < ends_s, f"{value!r} did not come"
        time.sleep(0.02)


subscription = client.topic("parent").subscribe("sub", take)
await_own("parent", b"before")
if child := os.fork():
    await_own("parent", b"beside")
    _, status = os.waitpid(child, 0)
    await_own("parent", b"after")
    assert not subscription.ended
    sys.exit(os.waitstatus_to_exitcode(status))
client.topic("child").subscribe("sub", take)
await_own("child", b"child")
assert came == [b"before", b"child"], "nothing of the parent's comes"
