"""The version of this installation: packaging takes it from git's tags."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from hqueue.runtime.extras import DISTRIBUTION

__all__ = ["__version__"]

try:
    __version__ = version(DISTRIBUTION)
except PackageNotFoundError:  # Files that were copied, as Spark does with those of ``--py-files``.
    __version__ = "0+unknown"
