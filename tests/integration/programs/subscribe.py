"""A process that subscribes: ``subscribe.py <queue> <name> <port>``; any free port if that is 0.

It says ``ready`` when it is present, and stops cleanly when its stdin ends. It prints the value
of each message.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import hqueue
from hqueue import ReceivedMessage, Subscription


def show(messages: Sequence[ReceivedMessage]) -> None:
    for message in messages:
        print(message.value.decode(), flush=True)


def main() -> None:
    name, port = sys.argv[2], int(sys.argv[3])
    with (
        hqueue.connect() as client,
        client.queue(sys.argv[1]).subscriber(Subscription(name), show, port=port),
    ):
        print("ready", flush=True)
        sys.stdin.read()


main()
