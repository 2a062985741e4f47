"""HBase's errors, translated to this library's: the one place that reads their texts."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from hqueue.errors import (
    AuthenticationError,
    HQueueError,
    Outcome,
    QueueDisabledError,
    QueueEnabledError,
    QueueExistsError,
    QueueNotFoundError,
    RequestRefusedError,
    RowsUnreadableError,
    StoreUnavailableError,
)
from hqueue.hbase.answers import ROWS_UNREADABLE, ReadsAnswer, is_of_files
from hqueue.hbase.reachability import silence_text
from hqueue.hbase.thrift.idl import IllegalArgument, IOError, hbase2
from hqueue.net.refusals import refusal_of

__all__ = [
    "DECLARED_ERRORS",
    "present",
    "reads_answer",
    "translate_answer",
    "translate_silence",
]

Result = TypeVar("Result")

DECLARED_ERRORS = (IOError, IllegalArgument, hbase2.TIOError)
"""What the gateways raise as an answer: the connection stays good."""

_STATES: tuple[tuple[str, type[HQueueError], str], ...] = (
    ("TableNotFoundException", QueueNotFoundError, "there is no such queue"),
    ("TableExistsException", QueueExistsError, "there is a table of that name already"),
    ("TableNotEnabledException", QueueDisabledError, "the queue is disabled"),
    ("TableNotDisabledException", QueueEnabledError, "the queue must be disabled first"),
    (
        "NamespaceNotFoundException",
        RequestRefusedError,
        "there is no such namespace: HBase's shell creates it, by create_namespace",
    ),
)
_BARE_TEXTS = {
    "{table}": "TableNotFoundException",
    "{table} is disabled.": "TableNotEnabledException",
    "tableName={table}, state=ENABLED": "TableNotDisabledException",
}
_OF_SEVERAL_ROWS = re.compile(r"Failed \d+ actions?: (.+): \d+ times?, servers with issues:")
_ANOTHER_KIND = re.compile(r": \d+ times?, ")
"""For a request for several rows, HBase's client counts the errors of each kind. For final errors
it reports the text without the class, for others the class."""
_REFUSALS = (
    "NoSuchColumnFamilyException",
    "IllegalArgumentException",
    "DoNotRetryIOException",
    "AccessDeniedException",
    "InvalidFamilyOperationException",
    "UnsupportedOperationException",
)
_PASSING = ("could not be completed in",)
"""What HBase's client says of a ZooKeeper that was slow, although under a final error's name."""


def translate_answer(error: Exception, table: str, method: str) -> HQueueError:
    """An error that a gateway gave as its answer.

    States of the table and refusals are final. Everything else means that the region server or
    the master behind the gateway did not answer in time: the outcome is unknown, because the
    gateway may have sent the request on before it gave up.
    """
    message = getattr(error, "message", None) or ""
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    first_line = text.strip().splitlines()[0][:300] if text.strip() else ""
    said, outcome = [text], None
    if getattr(error, "canRetry", None) is False:
        # Thrift2 leaves out the class of an exception that its own HBase client raised.
        said.append(_class_of(first_line, table))
    elif several := _OF_SEVERAL_ROWS.search(text):
        said += [_class_of(each, table) for each in _ANOTHER_KIND.split(several[1])]
        outcome = Outcome.UNKNOWN  # Some of the rows may have been written.
    for marker, kind, static in _STATES:
        if any(marker in each for each in said):
            return kind(static, queue=table, outcome=outcome)
    if is_of_files(text):
        return RowsUnreadableError(
            ROWS_UNREADABLE,
            outcome=Outcome.UNKNOWN,
            queue=table,
            request=method,
            answer=first_line,
        )
    passing = any(marker in text for marker in _PASSING)
    if not passing and any(marker in text for marker in _REFUSALS):
        return RequestRefusedError(
            "HBase refused the request", queue=table, request=method, answer=first_line
        )
    return StoreUnavailableError(
        "HBase did not finish the request in time",
        outcome=Outcome.UNKNOWN,
        queue=table,
        request=method,
        answer=first_line,
    )


def _class_of(bare: str, table: str) -> str:
    """The class of the exception with this text; empty if the text is not known."""
    return _BARE_TEXTS.get(bare.replace(table, "{table}"), "") if table else ""


def translate_silence(
    error: BaseException, table: str, method: str, gateway: str, *, sent: bool
) -> AuthenticationError | StoreUnavailableError:
    """A connection that failed, before or after the request was sent."""
    if (refusal := refusal_of(error)) is not None:
        facts: dict[str, Any] = {"gateway": gateway, "request": method, **refusal.facts}
        return AuthenticationError(refusal.text, queue=table, **facts)
    return StoreUnavailableError(
        silence_text(error, "gateway", sent=sent),
        outcome=Outcome.UNKNOWN if sent else Outcome.NOT_APPLIED,
        queue=table,
        request=method,
        gateway=gateway,
        reason=f"{type(error).__name__}: {error}",
    )


def present(value: Result | None) -> Result:
    """A field that an answer must have. What lacks it is not taken for "there is none".

    Raises:
        StoreUnavailableError: it is missing.
    """
    if value is None:
        raise StoreUnavailableError("the gateway's answer lacks a field", outcome=Outcome.UNKNOWN)
    return value


reads_answer = ReadsAnswer(
    "the gateway's answer is malformed", AttributeError, IndexError, KeyError, TypeError, ValueError
)
"""Thrift's decoders let fields be missing that must be there, and let text be no text."""
