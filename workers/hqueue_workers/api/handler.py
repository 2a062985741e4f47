"""The handler of ``HQueueService``."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from hqueue import (
    Client,
    HQueueError,
    InvalidInputError,
    Message,
    MessageID,
    Outcome,
    QueueStateError,
    Scan,
)
from hqueue.engine import Engine, OpenLog
from hqueue.errors import NotAllowedError
from hqueue.metadata.access_rules import Operation
from hqueue.net.audit import Audit
from hqueue.rpc.server import calling_host, calling_principal
from hqueue.runtime.clock import Clock
from hqueue.runtime.logs import Log
from hqueue.runtime.loop import computed, in_thread
from hqueue.runtime.only_reads import OnlyReads
from hqueue.settings.names import EVERYBODY
from hqueue.typing import MessageIDs
from hqueue_workers.api.failures import exception_of
from hqueue_workers.api.queues import QueueCache
from hqueue_workers.api.scanner import ApiScanner
from hqueue_workers.api.scanners import ScannerTable
from hqueue_workers.api.structs import (
    API,
    END,
    id_of,
    id_struct,
    message_of,
    messages_of_list,
    put_answer,
    scan_of,
    struct_of,
    text_of,
)
from hqueue_workers.node.access_control import AccessControl

__all__ = ["Handler"]

logger = Log(__name__)

_Result = TypeVar("_Result")

HERE_MESSAGES = 64
"""This many messages of an answer are made in the loop."""


class Count(Protocol):
    """Counts a call that was answered."""

    def __call__(self, method: str, result: str, took_ms: float) -> object: ...


def _declared(
    *, writes: bool
) -> Callable[[Callable[..., Awaitable[_Result]]], Callable[..., Awaitable[_Result]]]:
    """Make a call end only with errors that the IDL declares, and count it. Its arguments are
    checked before anything is awaited; those of a large call are checked in a thread.

    Args:
        writes: whether the call may change anything. The outcome of a call that does not is never
            unknown.
    """

    def decorate(
        call: Callable[..., Awaitable[_Result]],
    ) -> Callable[..., Awaitable[_Result]]:
        @functools.wraps(call)
        def begun(self: Handler, *arguments: object) -> Awaitable[_Result]:
            began_ms = self.clock.monotonic_ms()
            try:
                return answered(self, call(self, *arguments), began_ms)
            except BaseException as exc:
                raise failed(self, exc, began_ms) from exc

        async def answered(self: Handler, work: Awaitable[_Result], began_ms: float) -> _Result:
            try:
                result = await work
            except BaseException as exc:
                raise failed(self, exc, began_ms) from exc
            self.count(call.__name__, "ok", self.clock.monotonic_ms() - began_ms)
            return result

        def failed(self: Handler, error: BaseException, began_ms: float) -> BaseException:
            """Count an error, and return the exception to raise for it."""
            raised: BaseException
            if isinstance(error, HQueueError):
                if not writes:
                    error.outcome = Outcome.NOT_APPLIED
                if isinstance(error, NotAllowedError):
                    caller = calling_principal(), calling_host()
                    on: dict[str, Any] = {
                        "queue": error.facts["queue"],
                        "topic": error.facts.get("topic"),
                    }
                    self.audit.refused(call.__name__, *caller, error.text, **on)
                raised, result = exception_of(error)
                if result == "service_error":
                    logger.error("a client's call to %s failed: %s", call.__name__, error)
            elif isinstance(error, asyncio.CancelledError):  # The process ends.
                return error
            else:
                result = "service_error"
                logger.error("a client's call to %s failed", call.__name__, exc_info=error)
                outcome = API.TOutcome.UNKNOWN if writes else API.TOutcome.NOT_APPLIED
                raised = API.TServiceError(
                    message="this process has a fault; its log says more", outcome=outcome
                )
            self.count(call.__name__, result, self.clock.monotonic_ms() - began_ms)
            return raised

        return begun

    return decorate


class Handler:
    """Answers calls of the API, in an event loop. An argument that does not have its type is None.

    Args:
        client: the connection.
        scanners: the open scanners.
        scanner_bytes_max: about how many bytes a scanner reads at a time, and an answer has.
        clock: the clock.
        count: called for each call that was answered.
        access: the access rules; None if they are not used.
    """

    def __init__(
        self,
        client: Client,
        scanners: ScannerTable,
        scanner_bytes_max: int,
        clock: Clock,
        count: Count,
        *,
        access: AccessControl | None = None,
    ) -> None:
        self.clock = clock
        self.count = count
        self.audit = Audit()
        self._access = access
        self._client = client
        self._scanners = scanners
        self._scanner_bytes_max = scanner_bytes_max
        self._queues = QueueCache(Engine(client).open, clock)

    # ruff: noqa: N802, N803  (the IDL's names)

    @_declared(writes=False)
    def messageScannerOpen(
        self, queueName: object, partitionID: object, messageScan: Any
    ) -> Awaitable[str]:
        """As the IDL says."""
        name, scan = text_of(queueName, "queueName"), scan_of(messageScan)
        partition = _number(partitionID, "partitionID")
        self._check_allowed(name, [Operation.READ], scan.topics or [EVERYBODY])
        self._scanners.check_room()
        return self._open(name, partition, scan)

    @_declared(writes=False)
    async def messageScannerGet(self, id: object) -> Any:
        """As the IDL says."""
        messages = await self._take(id, 1)
        return messages[0] if messages else END

    @_declared(writes=False)
    def messageScannerGetList(self, id: object, nbMessages: object) -> Awaitable[list[Any]]:
        """As the IDL says."""
        count = _number(nbMessages, "nbMessages")
        if count < 1:
            raise InvalidInputError("the number of messages must be at least 1", nbMessages=count)
        return self._take(id, count)

    @_declared(writes=False)
    def messageScannerClose(self, id: object) -> Awaitable[None]:
        """As the IDL says."""
        return self._scanners.close(text_of(id, "id"), calling_principal())

    @_declared(writes=True)
    def putMessage(self, queueName: object, tMessage: Any) -> Awaitable[object]:
        """As the IDL says."""
        return self._put(queueName, message_of(tMessage))

    @_declared(writes=True)
    def putMessages(self, queueName: object, tMessages: Sequence[Any] | None) -> Awaitable[object]:
        """As the IDL says."""
        return self._put(queueName, messages_of_list(tMessages))

    @_declared(writes=True)
    def putMessageWithPid(
        self, queueName: object, partitionID: object, tMessage: Any
    ) -> Awaitable[object]:
        """As the IDL says."""
        partition = _number(partitionID, "partitionID")
        return self._put(queueName, message_of(tMessage), partition=partition)

    @_declared(writes=True)
    def putMessagesWithPid(
        self, queueName: object, partitionID: object, tMessages: Sequence[Any] | None
    ) -> Awaitable[object]:
        """As the IDL says."""
        partition = _number(partitionID, "partitionID")
        return self._put(queueName, messages_of_list(tMessages), partition=partition)

    @_declared(writes=True)
    def put(self, put: Any) -> Awaitable[Any]:
        """As the IDL says."""
        if put is None:
            raise InvalidInputError("an argument is missing", argument="put")
        messages = messages_of_list(put.messages)
        since = id_of(put.since, "since")
        ids = self._put(
            put.queueName,
            messages,
            partition=put.partitionID,
            key=put.key,
            idempotency_key=put.idempotencyKey,
            since=since,
        )
        return self._answered(ids, len(messages))

    @_declared(writes=False)
    async def currentPosition(self, queueName: object) -> Any:
        """As the IDL says."""
        name = text_of(queueName, "queueName")
        self._check_allowed(name, [Operation.READ, Operation.PUBLISH])
        queue = await self._opened(name)
        return id_struct(await queue.in_loop().appender.current_position())

    @_declared(writes=False)
    async def getQueueLocations(self, queueName: object) -> list[Any]:
        """As the IDL says."""
        name = text_of(queueName, "queueName")
        self._check_allowed(name, [Operation.READ, Operation.PUBLISH])
        return [
            API.TQueueLocation(partitionID=each.partition, host=each.host, port=each.port)
            for each in await in_thread(self._client.locations, name)
        ]

    async def _open(self, name: str, partition: int, scan: Scan) -> str:
        reader = (await self._opened(name)).in_loop().reader
        return self._scanners.add(
            ApiScanner(
                reader,
                partition,
                scan,
                self._scanner_bytes_max,
                self.clock,
                queue=name,
                principal=calling_principal(),
            )
        )

    async def _take(self, scanner_id: object, count_max: int) -> list[Any]:
        used = self._scanners.used(text_of(scanner_id, "id"), calling_principal())
        async with used as scanner:
            self._check_allowed(scanner.queue, [Operation.READ], scanner.topics or [EVERYBODY])
            messages = await scanner.take(count_max)
        if len(messages) <= HERE_MESSAGES:
            return [struct_of(message) for message in messages]
        return await computed(lambda: [struct_of(message) for message in messages])

    def _put(
        self,
        name: object,
        messages: Message | Sequence[Message],
        **options: Any,
    ) -> Awaitable[MessageID | MessageIDs]:
        text = text_of(name, "queueName")
        if self._access is not None:
            each = [messages] if isinstance(messages, Message) else messages
            self._check_allowed(text, [Operation.PUBLISH], {message.topic for message in each})
        return self._append(text, messages, **options)

    async def _append(
        self,
        text: str,
        messages: Message | Sequence[Message],
        *,
        partition: int | None = None,
        key: bytes | None = None,
        idempotency_key: bytes | None = None,
        since: MessageID | None = None,
    ) -> MessageID | MessageIDs:
        queue = await self._opened(text)
        try:
            return await queue.in_loop().appender.put(
                messages,
                partition=partition,
                key=key,
                idempotency_key=idempotency_key,
                since=since,
            )
        except QueueStateError:
            self._queues.drop(text)
            raise

    def _check_allowed(
        self,
        queue: str,
        operations: Sequence[Operation],
        topics: Iterable[str | None] = (None,),
    ) -> None:
        """Return if the caller may do one of these operations with all of these topics; with any
        topic if None.

        Raises:
            NotAllowedError: the caller may not do this.
        """
        access, principal = self._access, calling_principal()
        if access is None:
            return
        for topic in topics:
            if not any(access.allows(principal, each, queue, topic) for each in operations):
                needed = " or ".join(each.value for each in operations)
                error = NotAllowedError(
                    f"no access rule allows this principal to {needed}",
                    principal=principal,
                    operation=needed,
                    queue=queue,
                )
                if topic is not None:
                    error.facts["topic"] = topic
                raise error

    @staticmethod
    async def _answered(ids: Awaitable[MessageID | MessageIDs], count: int) -> Any:
        found = await ids
        return put_answer(found if isinstance(found, MessageID) else found[0], count)

    async def _opened(self, name: str) -> OpenLog:
        """An open queue, which stays as it is."""
        with OnlyReads():
            return await self._queues.get(name)


def _number(given: object, name: str) -> int:
    """An argument that is a number.

    Raises:
        InvalidInputError: it is missing.
    """
    if not isinstance(given, int):
        raise InvalidInputError("an argument is missing", argument=name)
    return given
