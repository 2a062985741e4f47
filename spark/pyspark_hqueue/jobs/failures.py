"""Errors of Spark, as errors of this library."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

from hqueue import HQueueError, InvalidInputError, Outcome, errors
from pyspark_hqueue.reading.loss import DataLossError

__all__ = ["JobError", "first_line", "refusing", "spark_ended", "table_conflict", "translated"]

_KINDS: dict[str, type[HQueueError]] = {
    name: kind for name, kind in vars(errors).items() if name.endswith("Error")
} | {"DataLossError": DataLossError}
_RAISED = re.compile(r"^(?:.*: )?(?:hqueue|pyspark_hqueue)[\w.]*\.(\w+Error): (.*)$", re.MULTILINE)
_CONCURRENT = "CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|ConcurrentModificationException"
_CALLING = "An error occurred while calling "

_CONFLICTS: tuple[tuple[str, str, Outcome], ...] = (
    (
        "DELTA_CONCURRENT_TRANSACTION|ConcurrentTransactionException",
        "another run with the same checkpoint has written to the Delta table, and this run wrote "
        "nothing of the round: let one run continue, and start no other",
        Outcome.NOT_APPLIED,
    ),
    (
        r"DELTA_(CONCURRENT_[A-Z_]+|METADATA_CHANGED\b|PROTOCOL_CHANGED\b)"
        r"|io\.delta\.exceptions\.(Concurrent|MetadataChanged|ProtocolChanged)\w*Exception",
        "another program changed the Delta table at the same moment, and nothing of the round was "
        "written: start again",
        Outcome.NOT_APPLIED,
    ),
    (
        "CommitStateUnknownException",
        "the Iceberg catalog did not answer a commit: start again, and the new run finds out "
        "whether the round was written",
        Outcome.UNKNOWN,
    ),
    (
        r"iceberg\.exceptions\.(CommitFailed|CherrypickAncestorCommit|DuplicateWAPCommit"
        r"|Validation)Exception",
        "another program changed the Iceberg table at the same moment, and readers see nothing of "
        "the round: start again",
        Outcome.NOT_APPLIED,
    ),
)
"""For each conflict of commits: its names in the table's format, our text, and the outcome."""


class JobError(HQueueError):
    """A pipeline failed in Spark. It can be started again, and continues where it stopped."""

    default_outcome = Outcome.NOT_APPLIED  # The job is safe to repeat: nothing is done twice.


@contextlib.contextmanager
def refusing(text: str, **facts: Any) -> Iterator[None]:
    """Raise an `InvalidInputError` with this text if Spark can't analyse something in the block."""
    try:
        yield
    except AnalysisException as exc:
        raise InvalidInputError(text, **facts, reason=first_line(str(exc))) from exc


@contextlib.contextmanager
def translated(raised: Sequence[Exception] = ()) -> Iterator[None]:
    """Turn errors that Spark raises into an `HQueueError`.

    Args:
        raised: the errors that functions called by Spark have raised in this process. Used only
            when Spark has failed.
    """
    try:
        yield
    except (Py4JNetworkError, ConnectionError) as exc:
        raise spark_ended() from exc
    except (PySparkException, Py4JError) as exc:
        for cause in raised:
            if isinstance(cause, HQueueError):
                raise cause from exc
        raise _translation(str(raised[0]) if raised else str(exc)) from exc


def spark_ended() -> JobError:
    """The error for a job whose Java process is gone."""
    return JobError(
        "Spark's Java process has ended, perhaps since the machine had no memory left: start "
        "again, and the job continues"
    )


def _translation(text: str) -> HQueueError:
    found = _RAISED.findall(text)
    if found:
        name, message = found[-1]
        outcome = Outcome.UNKNOWN if "outcome='unknown'" in message else Outcome.NOT_APPLIED
        return _KINDS.get(name, JobError)(message.strip(), outcome=outcome)
    if (conflict := table_conflict(text)) is not None:
        return conflict
    if re.search(_CONCURRENT, text):
        return JobError("another run with the same checkpoint is under way: wait until it ends")
    return JobError("the job failed in Spark", reason=first_line(text))


def table_conflict(text: str) -> JobError | None:
    """The error of a commit that another commit of the table prevented; None for other errors.

    Args:
        text: the text of Spark's error.
    """
    for pattern, what, outcome in _CONFLICTS:
        if re.search(pattern, text):
            return JobError(what, outcome=outcome, reason=first_line(text))
    return None


def first_line(text: str) -> str:
    """The first line of the text of Spark's error, without py4j's words."""
    lines = (line.strip().removeprefix(": ") for line in text.splitlines())
    said = (line for line in lines if line and not line.startswith(_CALLING))
    return next(said, "unknown")
