"""What all explorations share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

LOGGER = logging.getLogger("hqueue.log")


def quiet() -> None:
    """The log's warnings of every run would fill the memory."""
    LOGGER.setLevel(logging.CRITICAL + 1)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    level = LOGGER.level
    quiet()
    yield
    LOGGER.setLevel(level)
