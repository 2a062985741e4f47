"""Notifications as producers send them to workers, and a key that signs what goes along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hqueue.metadata.append_keys import AppendKey, AppendKeys
from hqueue.push.append_notifier import WORKER_SERVICE
from hqueue.rpc.messages import encode_call

__all__ = ["KEYS", "frame_of", "vouches"]

KEYS = AppendKeys(AppendKey.random(0))


def vouches(queue: str, batch: Any) -> bool:
    """Whether a batch is signed with the key that the tests have."""
    return KEYS.vouch(
        batch.key or b"",
        batch.mac or b"",
        0,
        queue=queue,
        partition=batch.partition,
        slot=batch.slot,
        header=batch.header,
        cells=batch.cells,
    )


def frame_of(queue: str, partitions: Sequence[int], batches: Sequence[Any] | None = None) -> bytes:
    """A notification, as it is on the wire."""
    call = encode_call(WORKER_SERVICE, "appended", queue, partitions, batches)
    return len(call).to_bytes(4, "big") + call
