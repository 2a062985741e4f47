"""The Spark session of a command of ``hqueue pipeline``, and its options for reading."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

from hqueue.cli.session import session_of
from hqueue.errors import InvalidInputError, SettingsError
from hqueue.runtime.extras import installing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["command_session", "pyspark_installed", "reading_options", "until_interrupted"]


@contextlib.contextmanager
def pyspark_installed() -> Iterator[None]:
    """Say what to install if an import in the block fails.

    Raises:
        SettingsError: PySpark, or what comes with it, is not installed.
    """
    try:
        yield
    except ImportError as exc:
        raise SettingsError(
            f"a package that pipelines need is not installed: {installing('spark')}"
        ) from exc


@contextlib.contextmanager
def command_session(
    name: str, master: str | None, conf: list[str] | None
) -> Iterator[SparkSession]:
    """A session for the block, which is stopped at the end.

    Args:
        name: the name of the application.
        master: as for `pyspark_hqueue.jobs.sessions.spark_session`.
        conf: Spark's settings, each as NAME=VALUE.

    Raises:
        InvalidInputError: a setting is not written as NAME=VALUE.
        SettingsError: PySpark is not installed.
    """
    with pyspark_installed():
        from pyspark_hqueue.jobs.sessions import spark_session  # noqa: PLC0415
    settings = {}
    for text in conf or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidInputError("a Spark setting must be written as NAME=VALUE", conf=text)
        settings[key] = value
    with spark_session(name, master, settings) as session:
        yield session


def reading_options(context: typer.Context, allow_data_loss: bool) -> dict[str, str]:
    """The data source's options with which a command reads its queue."""
    return {**session_of(context).spark_options, "failOnDataLoss": str(not allow_data_loss).lower()}


def until_interrupted(run: Callable[[], object], *, follow: bool) -> None:
    """Call a function. If it follows a queue, Ctrl-C ends it without failure."""
    try:
        run()
    except KeyboardInterrupt:
        if not follow:
            raise
