"""Share groups of a Kafka broker, which ours are compared with."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["KafkaShares"]

WAIT_S = 120.0


class KafkaShares:
    """A broker's topics, and groups that share them.

    Args:
        address: the broker's, which has share groups: Kafka 4.2 or later.
    """

    def __init__(self, address: str) -> None:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - Only this case needs it.

        self._servers = {"bootstrap.servers": address}
        self._admin = AdminClient(self._servers)

    def given(self, partitions: int) -> dict[str, str]:
        """Make an empty topic and a group that begins with the topic's first message.

        Returns:
            What a consumer of them is made of.
        """
        from confluent_kafka.admin import (  # noqa: PLC0415
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            NewTopic,
            ResourceType,
        )  # fmt: skip

        topic, group = (f"bench-{uuid.uuid4().hex[:12]}" for _ in range(2))
        earliest = ConfigEntry(
            "share.auto.offset.reset",
            "earliest",
            incremental_operation=AlterConfigOpType.SET,
        )
        futures = [
            *self._admin.create_topics([NewTopic(topic, partitions, 1)]).values(),
            *self._admin.incremental_alter_configs(
                [ConfigResource(ResourceType.GROUP, group, incremental_configs=[earliest])]
            ).values(),
        ]
        for future in futures:
            future.result(WAIT_S)
        address = self._servers["bootstrap.servers"]
        return {"system": "kafka", "address": address, "queue": topic, "group": group}

    def fill(self, given: Mapping[str, str], values: Sequence[bytes]) -> None:
        """Put values into the topic of a group, spread over its partitions."""
        with self.sender(given) as send:
            for value in values:
                send(value)

    @contextlib.contextmanager
    def sender(self, given: Mapping[str, str]) -> Iterator[Callable[[bytes], object]]:
        """What sends a message to the topic of a group. When the block ends, the broker has all."""
        from confluent_kafka import Producer  # noqa: PLC0415

        producer: Any = Producer(
            {**self._servers, "linger.ms": 0, "queue.buffering.max.messages": 1_000_000}
        )
        yield lambda value: producer.produce(given["queue"], value)
        if left := producer.flush(WAIT_S):
            raise TimeoutError(f"the broker did not take {left} messages")
