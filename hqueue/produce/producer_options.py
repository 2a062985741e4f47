"""A producer's options."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["ProducerOptions"]


class ProducerOptions(TypedDict, total=False):
    """The options of a `Producer`."""

    linger_ms: float
    """How long a message may wait for others to join its batch. 5 by default."""

    batch_bytes_max: int
    """About how many bytes of bodies a batch may have. 1 MiB by default, 4 MiB at most."""

    batch_messages_max: int
    """How many messages a batch may have. 10,000 by default, 65,536 at most."""

    buffer_bytes_max: int
    """About how many bytes may be buffered and in flight; `Producer.send` waits for room. 64 MiB by
    default.
    """

    block_ms_max: float
    """How long `Producer.send` waits for room in the buffer. 60,000 by default."""

    appends_max: int
    """How many appends may be in flight at a time, each in another partition. 4 by default."""
