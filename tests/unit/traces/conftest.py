"""Traces of one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hqueue.traces
from tests.support.traces import Traces
from tests.support.watching import only_here


@pytest.fixture
def traces() -> Iterator[Traces]:
    with only_here():
        made = Traces()
        hqueue.traces.enable(made.provider)
        yield made
        made.provider.shutdown()
