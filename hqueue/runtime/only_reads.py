"""What only reads changes nothing: its errors say *not applied*."""

from __future__ import annotations

from contextlib import ContextDecorator

from hqueue.errors import HQueueError, Outcome

__all__ = ["OnlyReads"]


class OnlyReads(ContextDecorator):
    """A context, or a decorator, whose errors say that nothing was applied: a request that reads
    may have been carried out when its answer is lost, but that changes nothing.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, HQueueError):
            error.outcome = Outcome.NOT_APPLIED
