"""The messages that consumers of share groups return."""

from __future__ import annotations

from collections.abc import Iterable

from hqueue.message import ConsumedMessage, Message
from hqueue.message_id import MessageID

__all__ = ["AcquiredMessage"]

DELIVERIES_FIELD = 7


class AcquiredMessage(ConsumedMessage):
    """A message that a `ShareConsumer` returned. Immutable.

    Args:
        topic, value, id, partition, queue: as in a `ConsumedMessage`.
        deliveries: how often the message was delivered, this time included.
        key, headers: as in a `ConsumedMessage`.
    """

    __slots__ = ()

    @property
    def deliveries(self) -> int:
        """How often the group has delivered the message, this time included: 1 the first time."""
        return self[DELIVERIES_FIELD]  # type: ignore[return-value]

    def __new__(
        cls,
        topic: str,
        value: bytes | bytearray | memoryview,
        id: MessageID,
        partition: int,
        queue: str,
        *,
        deliveries: int,
        key: bytes | bytearray | memoryview | None = None,
        headers: Iterable[tuple[str, bytes | bytearray | memoryview]] = (),
    ) -> AcquiredMessage:
        fields = (*Message(topic, value, key, headers), id, partition, queue, deliveries)
        return tuple.__new__(cls, fields)

    @classmethod
    def of(cls, message: ConsumedMessage, deliveries: int) -> AcquiredMessage:
        """The message that was read, with how often it was delivered."""
        return tuple.__new__(cls, (*message, deliveries))

    def __getnewargs_ex__(self) -> tuple[tuple[object, ...], dict[str, object]]:
        given, named = super().__getnewargs_ex__()
        return given, {**named, "deliveries": self.deliveries}

    def __repr__(self) -> str:
        shown = self._shown(
            id=self.id, partition=self.partition, queue=self.queue, deliveries=self.deliveries
        )
        return f"AcquiredMessage({shown})"
