"""What needs an extra of the package says which one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hqueue.errors import InvalidInputError

__all__ = ["installing", "needing_arrow"]


def installing(extras: str) -> str:
    """How these extras of the package, with commas between, are installed. On the packages' index
    the name ``hqueue`` is another project's.
    """
    return f"in a clone of HQueue, pip install '.[{extras}]'"


@contextlib.contextmanager
def needing_arrow() -> Iterator[None]:
    """Import in this block what needs pyarrow.

    Raises:
        InvalidInputError: it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != "pyarrow":
            raise
        raise InvalidInputError(f"Arrow is not installed: {installing('arrow')}") from exc
