"""The options of a consumer of a share group."""

from __future__ import annotations

import dataclasses
from typing import TypedDict

from hqueue.errors import InvalidInputError
from hqueue.position import EARLIEST, Start, check_start
from hqueue.settings.keyword_options import check_options
from hqueue.settings.numbers import check_whole

__all__ = ["ShareOptions", "ShareSettings"]


class ShareOptions(TypedDict, total=False):
    """The options of a `ShareConsumer`, besides its queues, topics and group. Times are in
    milliseconds.
    """

    lock_ms: int
    """How long no other consumer gets a message that this consumer has, unless it is answered
    before. 30,000 by default, 100 to 86,400,000. Each consumer of a group may have its own value.
    """

    deliveries_max: int | None
    """How often a message is delivered at most. If it is released after the last delivery too, or
    its lock lapses, it becomes a dead letter of the group. 5 by default; None for no limit.
    """

    start: Start
    """Where the group begins in a partition that it has not consumed yet: ``"earliest"``, the
    default, ``"latest"``, or a position.
    """

    auto_acknowledge: bool
    """Whether asking for more messages acknowledges earlier ones that have no answer. True by
    default.
    """

    auto_renew: bool
    """Whether the consumer renews the locks of messages without an answer for as long as it lives.
    A task of its event loop does so, or of the library's own loop. Then `lock_ms` only says how
    long other consumers wait for the messages of a consumer that died. They never get a message
    that this consumer has and doesn't answer, until it is closed. False by default.
    """

    ordered_by_key: bool
    """Whether a message waits until all earlier ones with its key are answered for good. All
    consumers of a group must use the same value. False by default.
    """


@dataclasses.dataclass(frozen=True)
class ShareSettings:
    """`ShareOptions`, checked.

    Raises:
        InvalidInputError: one is out of range.
    """

    lock_ms: int = 30_000
    deliveries_max: int | None = 5
    start: Start = EARLIEST
    auto_acknowledge: bool = True
    auto_renew: bool = False
    ordered_by_key: bool = False

    @classmethod
    def of(cls, given: ShareOptions) -> ShareSettings:
        """The given options, and the defaults of the others."""
        check_options("a share consumer", given, [field.name for field in dataclasses.fields(cls)])
        return cls(**given)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "lock_ms", check_whole(self.lock_ms, 100, 86_400_000, option="lock_ms")
        )
        if self.deliveries_max is not None:
            most = check_whole(self.deliveries_max, 1, 1_000_000, option="deliveries_max")
            object.__setattr__(self, "deliveries_max", most)
        object.__setattr__(self, "start", check_start(self.start))
        for name in ("auto_acknowledge", "auto_renew", "ordered_by_key"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidInputError(f"{name} must be True or False", **{name: value})
