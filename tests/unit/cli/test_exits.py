"""The exit code says what became of an operation, and an error is shown with its facts."""

from __future__ import annotations

import pytest

from hqueue import errors
from hqueue.cli.exits import ExitCode, exit_code_of, show_error
from hqueue.errors import HQueueError, Outcome


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidInputError("x"), 2),
        (errors.MessageTooLargeError("x"), 2),
        (errors.SettingsError("x"), 2),
        (errors.QueueNotFoundError("x"), 1),
        (errors.RequestRefusedError("x"), 1),
        (errors.ClockSkewError("x"), 1),
        (errors.LocalServerError("x"), 1),
        (errors.StoreUnavailableError("x", outcome=Outcome.NOT_APPLIED), 3),
        (errors.BufferFullError("x"), 3),
        (errors.StoreUnavailableError("x", outcome=Outcome.UNKNOWN), 4),
        (errors.StoreUnavailableError("x"), 4),
        (errors.CorruptLogError("x"), 5),
        (errors.UnsupportedFormatError("x"), 5),
    ],
)
def test_the_exit_code_says_what_became_of_the_operation(error: HQueueError, code: int) -> None:
    assert exit_code_of(error) == code


def test_every_error_has_an_exit_code_that_says_that_something_failed() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__ if name.endswith("Error")]
    assert all(exit_code_of(kind("x")) != ExitCode.DONE for kind in kinds)


def test_an_error_is_shown_on_stderr_with_its_facts(capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.LocalServerError("it ended", process="master", log="one\ntwo")
    show_error(error)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "hqueue: error: it ended [process='master']\nlog:\n    one\n    two\n"


def test_an_unknown_outcome_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(errors.StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN))
    assert "[outcome='unknown']" in capsys.readouterr().err
