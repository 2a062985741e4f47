"""What tests of groups share."""

from __future__ import annotations

import pytest

from tests.support.memory.metadata import MemoryServer


@pytest.fixture
def metadata_server() -> MemoryServer:
    return MemoryServer(session_timeout_ms=300)
