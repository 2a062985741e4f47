"""A short run of every target of the fuzzer, with a fixed seed."""

from __future__ import annotations

import pytest

from .target import fuzz
from .targets import TARGETS

EXECUTIONS = {
    "wire": 60,
    "native": 60,
    "native-loop": 30,
    "command-line": 40,
    "thrift-api": 150,
    "thrift-api-arguments": 150,
}
"""Those that wait for sockets do fewer."""


@pytest.mark.parametrize("name", TARGETS)
def test_bad_input_ends_in_an_error_of_its_own(name: str) -> None:
    assert fuzz(TARGETS[name], seed=1, executions=EXECUTIONS.get(name, 300)) > 0
