"""What needs an extra of the package says which one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hqueue.errors import InvalidInputError

__all__ = ["needing_arrow"]


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
        raise InvalidInputError("Arrow needs more: pip install 'hqueue[arrow]'") from exc
