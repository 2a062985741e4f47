"""The service's handler: what each call of ``HQueueService`` does."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from hqueue import Client, HQueueError, InvalidInputError, Message, Outcome, Queue, QueueStateError
from hqueue.runtime.clock import Clock
from hqueue_workers.api.failures import exception_of
from hqueue_workers.api.queues import QueueCache
from hqueue_workers.api.scanner import ApiScanner
from hqueue_workers.api.scanners import ScannerTable
from hqueue_workers.api.structs import (
    API,
    END,
    message_of,
    messages_of_list,
    scan_of,
    struct_of,
    text_of,
)

__all__ = ["Handler"]

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class Count(Protocol):
    """Counts a call that was answered."""

    def __call__(self, method: str, result: str, took_ms: float) -> object: ...


def _declared(*, writes: bool) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """A call that ends with nothing but what the IDL declares, and is counted.

    Args:
        writes: whether it may change anything; of one that does not no outcome is unknown.
    """

    def decorate(call: Callable[..., _Result]) -> Callable[..., _Result]:
        @functools.wraps(call)
        def answered(self: Handler, *arguments: object) -> _Result:
            began_ms = self.clock.monotonic_ms()
            result = "ok"
            try:
                return call(self, *arguments)
            except HQueueError as exc:
                if not writes:
                    exc.outcome = Outcome.NOT_APPLIED
                raised, result = exception_of(exc)
                if result == "service_error":
                    logger.error("%s of a client failed: %s", call.__name__, exc)
                raise raised from exc
            except BaseException as exc:
                result = "service_error"
                logger.exception("%s of a client failed", call.__name__)
                outcome = API.TOutcome.UNKNOWN if writes else API.TOutcome.NOT_APPLIED
                raise API.TServiceError(
                    message="this process has a fault; its log says more", outcome=outcome
                ) from exc
            finally:
                self.count(call.__name__, result, self.clock.monotonic_ms() - began_ms)

        return answered

    return decorate


class Handler:
    """Answers calls of the API. Thread-safe. What the arguments are not, by their types, is None.

    Args:
        client: the connection.
        scanners: those that are open.
        scanner_bytes_max: what a scanner asks for at a time, and an answer has, about.
        clock: where time comes from.
        count: called for each call that was answered.
    """

    def __init__(
        self,
        client: Client,
        scanners: ScannerTable,
        scanner_bytes_max: int,
        clock: Clock,
        count: Count,
    ) -> None:
        self.clock = clock
        self.count = count
        self._client = client
        self._scanners = scanners
        self._scanner_bytes_max = scanner_bytes_max
        self._queues = QueueCache(client, clock)

    # ruff: noqa: N802, N803  (the IDL's names)

    @_declared(writes=False)
    def messageScannerOpen(self, queueName: object, partitionID: object, messageScan: Any) -> str:
        """As the IDL says."""
        name, scan = text_of(queueName, "queueName"), scan_of(messageScan)
        partition = _number(partitionID, "partitionID")
        self._scanners.check_room()
        scanner = ApiScanner(
            self._opened(name), partition, scan, self._scanner_bytes_max, self.clock
        )
        return self._scanners.add(scanner)

    @_declared(writes=False)
    def messageScannerGet(self, id: object) -> Any:
        """As the IDL says."""
        messages = self._take(id, 1)
        return messages[0] if messages else END

    @_declared(writes=False)
    def messageScannerGetList(self, id: object, nbMessages: object) -> list[Any]:
        """As the IDL says."""
        count = _number(nbMessages, "nbMessages")
        if count < 1:
            raise InvalidInputError("a number of messages is 1 or more", nbMessages=count)
        return self._take(id, count)

    @_declared(writes=False)
    def messageScannerClose(self, id: object) -> None:
        """As the IDL says."""
        self._scanners.close(text_of(id, "id"))

    @_declared(writes=True)
    def putMessage(self, queueName: object, tMessage: Any) -> None:
        """As the IDL says."""
        self._put(queueName, None, message_of(tMessage))

    @_declared(writes=True)
    def putMessages(self, queueName: object, tMessages: Sequence[Any] | None) -> None:
        """As the IDL says."""
        self._put(queueName, None, messages_of_list(tMessages))

    @_declared(writes=True)
    def putMessageWithPid(self, queueName: object, partitionID: object, tMessage: Any) -> None:
        """As the IDL says."""
        partition = _number(partitionID, "partitionID")
        self._put(queueName, partition, message_of(tMessage))

    @_declared(writes=True)
    def putMessagesWithPid(
        self, queueName: object, partitionID: object, tMessages: Sequence[Any] | None
    ) -> None:
        """As the IDL says."""
        partition = _number(partitionID, "partitionID")
        self._put(queueName, partition, messages_of_list(tMessages))

    @_declared(writes=False)
    def getQueueLocations(self, queueName: object) -> list[Any]:
        """As the IDL says."""
        return [
            API.TQueueLocation(partitionID=each.partition, host=each.host, port=each.port)
            for each in self._client.locations(text_of(queueName, "queueName"))
        ]

    def _take(self, scanner_id: object, count_max: int) -> list[Any]:
        with self._scanners.used(text_of(scanner_id, "id")) as scanner:
            return [struct_of(message) for message in scanner.take(count_max)]

    def _put(
        self, name: object, partition: int | None, messages: Message | Sequence[Message]
    ) -> None:
        text = text_of(name, "queueName")
        queue = self._opened(text)
        try:
            queue.put(messages, partition=partition)
        except QueueStateError:
            self._queues.forget(text)
            raise

    def _opened(self, name: str) -> Queue:
        """An open queue, of which nothing is changed by that."""
        try:
            return self._queues.get(name)
        except HQueueError as exc:
            exc.outcome = Outcome.NOT_APPLIED
            raise


def _number(given: object, name: str) -> int:
    """An argument that is a number.

    Raises:
        InvalidInputError: it is missing.
    """
    if not isinstance(given, int):
        raise InvalidInputError("an argument is missing", argument=name)
    return given
