"""A log in memory, and the dead letters in it."""

from __future__ import annotations

import pytest

from tests.support.dead_letters import DeadLettersInMemory, LogInMemory


@pytest.fixture
def log() -> LogInMemory:
    return LogInMemory()


@pytest.fixture
def letters(log: LogInMemory) -> DeadLettersInMemory:
    return DeadLettersInMemory(log)
