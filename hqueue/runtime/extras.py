"""What needs an extra of the package says which one."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator

from hqueue.errors import InvalidInputError

__all__ = ["DISTRIBUTION", "check_installed", "installing", "needing", "needing_arrow"]

DISTRIBUTION = "hqueue-hbase"
"""The name under which the package is installed. On the packages' index ``hqueue`` is another
project.
"""


def installing(extras: str) -> str:
    """How to add these extras, with commas between, to the installed package."""
    return f"pip install '{DISTRIBUTION}[{extras}]', or in a clone of HQueue '.[{extras}]'"


def check_installed(extra: str, *modules: str) -> None:
    """Check that an extra's modules can be imported, without importing them.

    Raises:
        ModuleNotFoundError: one of them is not installed. The text names the extra.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(
                f"{module} is not installed: {installing(extra)}", name=module
            )


@contextlib.contextmanager
def needing(extra: str, package: str, named: str) -> Iterator[None]:
    """Import in this block what needs an extra.

    Args:
        extra: the extra.
        package: its package, as it is imported.
        named: how the error names the package.

    Raises:
        InvalidInputError: the package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != package:
            raise
        raise InvalidInputError(f"{named} is not installed: {installing(extra)}") from exc


def needing_arrow() -> contextlib.AbstractContextManager[None]:
    """As `needing`, for pyarrow."""
    return needing("arrow", "pyarrow", "Arrow")
