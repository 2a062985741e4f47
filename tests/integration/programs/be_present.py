"""A process that is present in many partitions: ``be_present.py ROLE PARTITIONS BYTES_MAX``.

The role is ``subscriber``, whose checkpoints exist, or ``worker``. Says that it is ready when all
of it is registered, or claimed, and stays until it is killed.
"""

from __future__ import annotations

import sys

from hqueue import HQueueError, Settings
from hqueue.metadata import Address, PartitionKey, Presence
from hqueue.zookeeper import ZooKeeperCoordination


def fail(error: HQueueError) -> None:
    raise AssertionError(f"a registration failed: {error}")


def main() -> None:
    role, partitions, bytes_max = sys.argv[1], range(int(sys.argv[2])), int(sys.argv[3])
    coordination = ZooKeeperCoordination(Settings.load(), session_bytes_max=bytes_max)
    if role == "subscriber":
        presence = Presence(Address("127.0.0.1", 5_001))
        coordination.subscriptions.register("q", "s", presence, partitions, fail)
    else:
        keys = {PartitionKey("q", partition) for partition in partitions}
        assert coordination.owners.claim("w", keys) == keys
    coordination.confirm()
    print("ready", flush=True)
    sys.stdin.read()


main()
