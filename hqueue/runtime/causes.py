"""Following an error to what it came from."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["causes"]


def causes(error: BaseException | None, *, contexts: bool = False) -> Iterator[BaseException]:
    """Iterate over an error, the error that it was raised from, and so on. Each error comes once,
    also where errors come from one another in a circle: ``raise error from error`` makes one.

    Args:
        error: where to begin; None gives nothing.
        contexts: whether an error that was raised from none leads to the one that was being handled
            at that time.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (error.__context__ if contexts else None)
