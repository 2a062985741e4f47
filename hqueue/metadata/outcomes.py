"""What came of each of several changes, where one call makes them and not all come through."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from hqueue.errors import ClosedError, Outcome, RequestRefusedError, StoreUnavailableError
from hqueue.runtime.interrupts import is_interruption

__all__ = [
    "PartlyDoneError",
    "answers_of",
    "is_made",
    "is_unknown",
    "like",
    "own_copy",
    "partly_done",
    "unknown_if_made",
]


Error = TypeVar("Error", bound=BaseException)


class PartlyDoneError(StoreUnavailableError):
    """Of several changes at least one failed. Its outcome is that of all together."""

    answers: Mapping[str, Any]
    """What came of each: what the call returns for it, or an error with an outcome of its own."""


def partly_done(
    error: StoreUnavailableError, answers: Mapping[str, Any], outcome: Outcome | None = None
) -> StoreUnavailableError:
    """The error of a call that made several changes. Raise it from the first one.

    Args:
        error: what failed.
        answers: as `PartlyDoneError.answers`, of all that was asked for.
        outcome: of all together; if None it is unknown where any was made, or may have been.
    """
    if outcome is None:
        outcome = Outcome.UNKNOWN if any(map(is_made, answers.values())) else Outcome.NOT_APPLIED
    partly = PartlyDoneError(error.text, outcome=outcome, **error.facts)
    partly.answers = dict(answers)
    return partly


def is_made(answer: object) -> bool:
    """Whether a change was made, or may have been, by what came of it."""
    if isinstance(answer, StoreUnavailableError):
        return is_unknown(answer)
    return answer is not None and answer is not False


def is_unknown(answer: object) -> bool:
    """Whether it is not known if a change was made, by what came of it."""
    return isinstance(answer, StoreUnavailableError) and answer.outcome is Outcome.UNKNOWN


@contextlib.contextmanager
def unknown_if_made(answers: Mapping[str, Any]) -> Iterator[None]:
    """For what comes after some changes of a call: an error that says nothing of each is of all
    together, and its outcome unknown where any was made before, or may have been.

    Args:
        answers: as `PartlyDoneError.answers`, as they are when the error comes.
    """
    try:
        yield
    except (RequestRefusedError, ClosedError) as exc:
        if any(map(is_made, answers.values())):
            exc.outcome = Outcome.UNKNOWN
        raise


def answers_of(
    error: StoreUnavailableError, keys: Iterable[str], outcome: Outcome | None = None
) -> dict[str, Any]:
    """The outcome of each of these changes, by the error of the call that should have made them.

    Args:
        error: the error.
        keys: the records to change.
        outcome: of those that it does not name; if None its own.
    """
    known = error.answers if isinstance(error, PartlyDoneError) else {}
    return {key: known[key] if key in known else like(error, outcome) for key in keys}


def own_copy(error: Error) -> Error:
    """The same error for a further caller: each that is raised gathers a traceback of its own."""
    try:
        own = copy.copy(error)
    except Exception as exc:  # Its class can't be made from its arguments.
        if is_interruption(exc):
            raise
        return error
    own.__cause__ = error
    return own


def like(error: StoreUnavailableError, outcome: Outcome | None = None) -> StoreUnavailableError:
    """Such an error for one change alone, with this outcome or the same."""
    one = StoreUnavailableError(error.text, outcome=outcome or error.outcome, **error.facts)
    one.__cause__ = error
    return one
