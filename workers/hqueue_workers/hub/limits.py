"""The bounds and periods of a hub that no setting changes."""

from __future__ import annotations

import dataclasses

__all__ = ["HubLimits"]


@dataclasses.dataclass(frozen=True)
class HubLimits:
    """The bounds of a hub, for each of its queues."""

    recent_bytes_max: int = 32 * 1024 * 1024
    """The bytes of recent messages, of topics with subscriptions, that are kept in memory."""
    reading_bytes: int = 2 * 1024 * 1024
    """About how many bytes a reading of a backlog holds, beside one batch. Bodies count twice."""
    idle_readings_bytes_max: int = 32 * 1024 * 1024
    """The bytes that all readings hold together while no call uses them."""
    preferences_bytes_per_hour_max: int = 64 * 1024 * 1024
    """The bytes of preferences that each subscriber may store, at once and per hour. Subscribers'
    names may be unproven, and ZooKeeper keeps everything in memory."""
    publishers_max: int = 65_536
    """The publishers of a partition whose last sequence numbers are remembered: some 20 MB."""
    store_every_ms: float = 1_000.0
    """How often to store cursors that moved, and to look for silent sessions."""
    lag_every_ms: float = 10_000.0
    """How often the lags of subscriptions are measured."""
    fault_quiet_ms: float = 1_000.0
    """A fault that some subscriptions have, and others not, is over when no subscription had it for
    this long."""
