"""Why a message of ``hqueue work`` is not done."""

from __future__ import annotations

import pytest

from hqueue.cli.commands.work_process import Ran, Retries, verdict
from hqueue.settings.limits import REASON_LENGTH_MAX


@pytest.mark.parametrize(
    ("code", "begins"), [(1, "failed 2 times: exit code 1: "), (65, "exit code 65: ")]
)
def test_the_end_of_what_a_command_said_stays(code: int, begins: str) -> None:
    ran = Ran(code, "x" * 3_000 + "the last words\n")
    decided = verdict(ran, 2, Retries(2, 1_000))
    assert decided.reason.startswith(begins + "x")
    assert decided.reason.endswith("the last words")
    assert len(decided.reason) == REASON_LENGTH_MAX
