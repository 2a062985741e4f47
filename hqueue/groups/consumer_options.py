"""The options of a consumer."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypedDict

from hqueue.errors import InvalidInputError
from hqueue.groups.assignors import ASSIGNORS
from hqueue.position import EARLIEST, LATEST
from hqueue.settings.keyword_options import check_options
from hqueue.settings.limits import SCAN_BYTES_MAX
from hqueue.settings.names import with_closest
from hqueue.settings.numbers import check_whole

__all__ = ["ERROR", "ConsumerOptions", "ConsumerSettings"]

ERROR = "error"


class ConsumerOptions(TypedDict, total=False):
    """The options of a `Consumer` or `ParallelConsumer`, besides its queues and group. Times are in
    milliseconds.
    """

    auto_offset_reset: Literal["earliest", "latest", "error"]
    """Where to begin in a partition without an offset of the group, and where to continue when the
    messages at its offset have expired. ``earliest``, the default: at the oldest message.
    ``latest``: with messages that are written from now on. ``error``: raise an
    `OffsetOutOfRangeError` until `seek` is called. After a truncation ``latest`` begins at the new
    log's first message, as ``earliest`` does: all of the new log was written after the offset.
    """

    auto_commit: bool
    """Commit messages that were returned when more are asked for, at most every
    `auto_commit_interval_ms`, and before partitions are given up. True by default.
    """

    auto_commit_interval_ms: int
    """The least time between two automatic commits. 5,000 by default."""

    instance_id: str | None
    """Makes the consumer a static member: if it comes back with the same ID within
    ``zookeeper_session_timeout_ms``, it gets its partitions back, and no others move. None by
    default.
    """

    assignor: Literal["sticky", "range"]
    """How the group shares partitions. ``sticky``, the default: as evenly as possible, with as few
    moves as that needs; partitions that don't move are consumed without a pause. ``range``: slices
    of the sorted partitions, as Kafka's first consumers had them; all consumers give up everything
    first. All consumers of a group must have the same.
    """

    poll_interval_ms_max: int
    """If nothing was asked for during this time, the consumer leaves the group, so that others get
    its partitions. It rejoins at the next poll. 300,000 by default.
    """

    metadata_age_ms_max: int
    """How often to look for queues that were created or deleted. 30,000 by default."""

    bytes_max: int
    """About how many bytes of bodies the consumer holds and fetches at a time; at least five
    batches. 16 MiB by default, at most 512 MiB.
    """


@dataclasses.dataclass(frozen=True)
class ConsumerSettings:
    """`ConsumerOptions`, checked.

    Raises:
        InvalidInputError: one is out of range.
    """

    auto_offset_reset: str = EARLIEST
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    instance_id: str | None = None
    assignor: str = "sticky"
    poll_interval_ms_max: int = 300_000
    metadata_age_ms_max: int = 30_000
    bytes_max: int = 16 * 1024 * 1024

    @classmethod
    def of(cls, given: ConsumerOptions) -> ConsumerSettings:
        """Those that were given, and the defaults."""
        check_options("a consumer", given, [field.name for field in dataclasses.fields(cls)])
        return cls(**given)

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                wrong = InvalidInputError(
                    f"{name} must be one of {', '.join(known)}", **{name: value}
                )
                raise with_closest(wrong, str(value), known)
        for name, (low, high) in _BOUNDS.items():
            number = check_whole(getattr(self, name), low, high, option=name)
            object.__setattr__(self, name, number)
        if not isinstance(self.auto_commit, bool):
            raise InvalidInputError(
                "auto_commit must be True or False", auto_commit=self.auto_commit
            )


_CHOICES = {"auto_offset_reset": (EARLIEST, LATEST, ERROR), "assignor": tuple(ASSIGNORS)}

_BOUNDS = {
    "auto_commit_interval_ms": (1, 86_400_000),
    "poll_interval_ms_max": (100, 86_400_000),
    "metadata_age_ms_max": (100, 86_400_000),
    "bytes_max": (1, SCAN_BYTES_MAX),
}
