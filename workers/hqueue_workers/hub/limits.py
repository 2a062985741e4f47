"""Bounds of what a hub holds, and how often it looks after it, that no setting changes."""

from __future__ import annotations

import dataclasses

__all__ = ["HubLimits"]


@dataclasses.dataclass(frozen=True)
class HubLimits:
    """The bounds of a hub, for each of its queues."""

    recent_bytes_max: int = 32 * 1024 * 1024
    """What is kept in memory of what was published lately to topics with subscriptions."""
    reading_bytes: int = 2 * 1024 * 1024
    """What a reading of a backlog holds, but for one batch, about: each body counts twice."""
    idle_readings_bytes_max: int = 32 * 1024 * 1024
    """What the readings hold together that no call is put together of."""
    preferences_bytes_per_hour_max: int = 64 * 1024 * 1024
    """What each subscriber may have its application keep in preferences, at once and in an hour.
    Who subscribes is a name that nobody proves, and ZooKeeper has all that is kept in memory."""
    publishers_max: int = 65_536
    """Publishers of a partition whose last sequence numbers are remembered: some
    20 MB."""
    store_every_ms: float = 1_000.0
    """How often cursors that moved are stored, and silent sessions looked for."""
    lag_every_ms: float = 10_000.0
    """How often the lags of subscriptions are measured."""
    fault_quiet_ms: float = 1_000.0
    """What fails for one subscription, and not for others, is over when it failed for none for so
    long."""
