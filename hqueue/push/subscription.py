"""A subscription: the subscriber's name, its topics and partitions, and where each begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hqueue.errors import InvalidInputError
from hqueue.message import plain_text, topic_bytes
from hqueue.metadata import DeliveryOptions, check_name
from hqueue.position import EARLIEST, Start, check_start
from hqueue.settings.attributes import check_partition, check_partitions
from hqueue.settings.kinds import check_flag, check_kind, listed
from hqueue.settings.limits import PARTITIONS_MAX, TOPICS_PER_BATCH_MAX
from hqueue.settings.numbers import check_whole

__all__ = ["Subscription"]


class Subscription:
    """Selects what a subscriber receives of a queue: some partitions and topics, or all.

    Args:
        name: the subscriber's name in the queue. Its checkpoints are kept under this name, so a
            subscriber that comes back under it continues where it was.
        topics: the topics to receive; all if empty.
        start: where partitions without a checkpoint begin.
        reset: begin at `start` also in partitions with a checkpoint.
        delivery: how messages are delivered.

    Raises:
        InvalidInputError: an argument is out of range.
    """

    def __init__(
        self,
        name: str,
        topics: Iterable[str] = (),
        *,
        start: Start = EARLIEST,
        reset: bool = False,
        delivery: DeliveryOptions | None = None,
    ) -> None:
        self.name = check_name(name)
        self.topics = frozenset(
            plain_text(topic, "a topic must be a str") for topic in listed(topics, "topics")
        )
        if len(self.topics) > TOPICS_PER_BATCH_MAX:
            raise InvalidInputError(
                "too many topics: give fewer, or none for all",
                topics=len(self.topics),
                high=TOPICS_PER_BATCH_MAX,
            )
        for topic in self.topics:
            topic_bytes(topic)
        self.start = check_start(start)
        self.reset = check_flag(reset, "reset")
        self.delivery = (
            DeliveryOptions()
            if delivery is None
            else check_kind(delivery, DeliveryOptions, "delivery")
        )
        self._partitions: dict[int, Start] = {}

    def add_partition(self, partition: int, start: Start | None = None) -> Subscription:
        """Receive this partition, and no partitions that are not added. Returns the subscription
        itself.

        Args:
            partition: the partition.
            start: where this partition begins; the subscription's start if None.
        """
        number = check_whole(partition, 0, PARTITIONS_MAX - 1, option="partition")
        self._partitions[number] = self.start if start is None else check_start(start)
        return self

    def add_partitions(
        self, partitions: Iterable[int] | Mapping[int, Start | None]
    ) -> Subscription:
        """Receive these partitions; a mapping gives each a start. Returns the subscription
        itself.
        """
        if isinstance(partitions, Mapping):
            for partition, start in partitions.items():
                self.add_partition(partition, start)
        else:
            for partition in listed(partitions, "partitions"):
                self.add_partition(partition)
        return self

    def starts(self, partitions: int) -> dict[int, Start]:
        """The start of each wanted partition, in a queue with this many partitions.

        Raises:
            InvalidInputError: a partition that was added does not exist.
        """
        partitions = check_partitions(partitions)
        chosen = {
            check_partition(partition, partitions): start
            for partition, start in self._partitions.items()
        }
        return chosen or dict.fromkeys(range(partitions), self.start)
