"""A short run of every target of the fuzzer, with a fixed seed; `make fuzz` makes longer ones."""

from __future__ import annotations

import pytest

from .target import fuzz
from .targets import TARGETS

EXECUTIONS = {
    "wire": 30,
    "native": 30,
    "native-loop": 15,
    "command-line": 20,
}
"""Those that wait for sockets do fewer."""

EXECUTIONS_MAX = 100


@pytest.mark.parametrize("name", TARGETS)
def test_bad_input_ends_in_an_error_of_its_own(name: str) -> None:
    assert fuzz(TARGETS[name], seed=1, executions=EXECUTIONS.get(name, EXECUTIONS_MAX)) > 0
