"""What all parts of an open queue share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hqueue.errors import ClosedError
from hqueue.runtime.clock import Clock, Deadline
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise, stepwise
from hqueue.settings.attributes import QueueDescription, check_partition
from hqueue.settings.connection import Settings
from hqueue.settings.kinds import listed

__all__ = ["QueueContext"]


class QueueContext(Stepwise):
    """An open queue: what it is, what bounds an operation on it, and whether it was closed.

    Args:
        description: the queue, as it was when it was opened.
        describe: asks for what it is now.
        settings: the connection's.
        clock: where time comes from.
    """

    def __init__(
        self,
        description: QueueDescription,
        describe: Callable[[], Wait],
        settings: Settings,
        clock: Clock,
    ) -> None:
        self.name = description.name
        self.partitions = description.partitions
        self._describe = describe
        self.settings = settings
        self.clock = clock
        self._closed = False

    @stepwise
    def describe(self) -> Work[Any, QueueDescription]:
        """What the store says of the queue now."""
        found: QueueDescription = yield self._describe()
        return found

    def close(self) -> None:
        """Let every `check_open` refuse from now on."""
        self._closed = True

    def check_open(self) -> None:
        """Check that the queue was not closed.

        Raises:
            ClosedError: the queue was closed.
        """
        if self._closed:
            raise ClosedError("the queue was closed", queue=self.name)

    def check_partition(self, partition: object) -> int:
        """A partition that the queue has.

        Raises:
            InvalidInputError: it has not.
        """
        return check_partition(partition, self.partitions, queue=self.name)

    def chosen(self, partitions: Sequence[int] | None) -> Sequence[int]:
        """These partitions; all if None.

        Raises:
            InvalidInputError: one of them isn't there.
        """
        if partitions is None:
            return range(self.partitions)
        return [self.check_partition(partition) for partition in listed(partitions, "partitions")]

    def deadline(self) -> Deadline:
        """The bound on one operation, from now."""
        return Deadline(self.clock, self.settings.operation_timeout_ms)
