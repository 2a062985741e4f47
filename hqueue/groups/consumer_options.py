"""The options of a consumer."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypedDict

from hqueue.errors import InvalidInputError
from hqueue.groups.assignors import ASSIGNORS
from hqueue.handle.start import EARLIEST, LATEST
from hqueue.settings.limits import SCAN_BYTES_MAX
from hqueue.settings.names import with_closest
from hqueue.settings.numbers import check_whole
from hqueue.settings.options import check_options

__all__ = ["ERROR", "ConsumerOptions", "ConsumerSettings"]

ERROR = "error"


class ConsumerOptions(TypedDict, total=False):
    """The options of a `Consumer` or `ParallelConsumer`, besides what it consumes. Times in
    milliseconds.
    """

    auto_offset_reset: Literal["earliest", "latest", "error"]
    """Where a partition begins that has no offset of the group, and where it goes on when the
    messages at its offset have expired: with the oldest there is, by default; with what is written
    from now on; or with an `OffsetOutOfRangeError`, until `seek` is called. After a
    truncation ``latest`` begins with the new log's first message, as ``earliest`` does: all of it
    was written after the offset."""

    auto_commit: bool
    """Commit what was handed out, when more is asked for, at most every `auto_commit_interval_ms`;
    and before partitions are given up. True by default."""

    auto_commit_interval_ms: int
    """5,000 by default."""

    instance_id: str | None
    """Makes it a static member: one that comes back under the same ID within the session's
    time-out, ``zookeeper_session_timeout_ms``, has its partitions back, and none moves. None by
    default."""

    assignor: Literal["sticky", "range"]
    """Who gets what. ``sticky``, the default: as even as can be, with as few moves as that takes,
    and what stays is not stopped. ``range``: as Kafka's first consumers did it, slices of the
    sorted partitions, for which all give up everything first. The same for all of a group."""

    poll_interval_ms_max: int
    """When nothing was asked for so long, it leaves the group, so that others get its partitions;
    it comes back when it is asked. 300,000 by default."""

    metadata_age_ms_max: int
    """How often to look which queues there are. 30,000 by default."""

    bytes_max: int
    """The bodies held at a time and on their way, about; at least five batches. 16 MiB by default,
    512 at most."""


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
                wrong = InvalidInputError(f"{name} is one of {', '.join(known)}", **{name: value})
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
