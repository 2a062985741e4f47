"""What went wrong in Spark, as the errors of this library."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from hqueue import HQueueError, InvalidInputError, Outcome, errors
from pyspark_hqueue.reading.loss import DataLossError

__all__ = ["JobError", "refusing", "translated"]

_KINDS: dict[str, type[HQueueError]] = {
    name: kind for name, kind in vars(errors).items() if name.endswith("Error")
} | {"DataLossError": DataLossError}
_RAISED = re.compile(r"^(?:.*: )?(?:hqueue|pyspark_hqueue)[\w.]*\.(\w+Error): (.*)$", re.MULTILINE)
_CONCURRENT = "CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|ConcurrentModificationException"


class JobError(HQueueError):
    """A pipeline failed in Spark. It can be started again, and goes on where it was."""

    default_outcome = Outcome.NOT_APPLIED  # It is safe to do again: nothing is done twice.


@contextlib.contextmanager
def refusing(text: str, **facts: Any) -> Iterator[None]:
    """Raise an `InvalidInputError` of this text where Spark can't make sense of something."""
    try:
        yield
    except AnalysisException as exc:
        raise InvalidInputError(text, **facts, reason=str(exc).splitlines()[0]) from exc


@contextlib.contextmanager
def translated(raised: Sequence[Exception] = ()) -> Iterator[None]:
    """Turn what Spark raises into an `HQueueError`.

    Args:
        raised: what was raised in this process by functions that Spark called; looked at when
            Spark has failed.
    """
    try:
        yield
    except (PySparkException, Py4JError) as exc:
        for cause in raised:
            if isinstance(cause, HQueueError):
                raise cause from exc
        raise _translation(str(raised[0]) if raised else str(exc)) from exc


def _translation(text: str) -> HQueueError:
    found = _RAISED.findall(text)
    if found:
        name, message = found[-1]
        outcome = Outcome.UNKNOWN if "outcome='unknown'" in message else Outcome.NOT_APPLIED
        return _KINDS.get(name, JobError)(message.strip(), outcome=outcome)
    if re.search(_CONCURRENT, text):
        return JobError("another run with the same checkpoint is under way: wait until it ends")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return JobError("the job failed in Spark", reason=lines[0] if lines else "unknown")
