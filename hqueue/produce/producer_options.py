"""A producer's options."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["ProducerOptions"]


class ProducerOptions(TypedDict, total=False):
    """The options of a `Producer`."""

    linger_ms: float
    """How long a message may wait for others to be batched with. 5 by default."""

    batch_bytes_max: int
    """Bodies of a batch, about. 1 MiB by default, 4 MiB at most."""

    batch_messages_max: int
    """Messages of a batch. 10,000 by default, 65,536 at most."""

    buffer_bytes_max: int
    """What may be in the buffer and under way, about; `Producer.send` waits for room. 64 MiB by
    default."""

    block_ms_max: float
    """How long `Producer.send` waits for room. A minute by default."""

    appends_max: int
    """Appends under way at a time, in as many partitions. 4 by default."""
