"""What a worker does, by hand: calls of a subscriber with nothing but Thrift and the IDL."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import thriftpy2
from thriftpy2.rpc import make_client

from hqueue import ReceivedMessage
from hqueue.metadata import Address

__all__ = ["Delivering"]

IDL = Path(__file__).parents[2] / "thrift" / "subscriber.thrift"
_idl: Any = thriftpy2.load(str(IDL), module_name="test_delivering_thrift")


class Delivering:
    """A connection to a subscriber."""

    idl = _idl

    def __init__(self, address: Address | None) -> None:
        assert address is not None
        self._client = make_client(
            _idl.HQueueSubscriberService, address.host, address.port, timeout=60_000
        )

    def __enter__(self) -> Delivering:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def deliver(self, messages: Iterable[ReceivedMessage]) -> int:
        """Deliver messages that were read; the subscriber's status."""
        status: int = self._client.consumeMessages(
            [
                _idl.TMessage(
                    _idl.TMessageID(message.id.timestamp, message.id.sequence),
                    message.partition,
                    message.topic.encode(),
                    message.value,
                    message.key,
                    [_idl.THeader(name.encode(), value) for name, value in message.headers] or None,
                )
                for message in messages
            ]
        )
        return status
