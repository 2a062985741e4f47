"""Each option that takes milliseconds takes a duration as people write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from hqueue import InvalidInputError
from hqueue.cli.app import app
from hqueue.position import parse_duration_ms
from tests.support.command_line import run_here


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("250", 250),
        ("0", 0),
        ("5s", 5_000),
        (" 2m ", 120_000),
        ("1m30s", 90_000),
        ("1d", 86_400_000),
    ],
)
def test_a_duration_is_milliseconds_or_has_units(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "5x", "-1", "1.5s", "s", "5 s 3", "-5s", "5s ago", "٣"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="duration"):
        parse_duration_ms(text)


def options() -> Iterator[tuple[str, Any]]:
    groups: list[tuple[str, Any]] = [("", typer.main.get_command(app))]
    while groups:
        path, group = groups.pop()
        for parameter in group.params:
            if parameter.name.endswith(("_ms", "_ms_max")):
                yield f"{path} {parameter.opts[0]}".strip(), parameter
        groups += [(f"{path} {n}".strip(), c) for n, c in getattr(group, "commands", {}).items()]


def test_every_option_in_milliseconds_takes_them() -> None:
    context = typer.main.get_command(app).make_context("hqueue", [], resilient_parsing=True)
    found = dict(options())
    assert {"--operation-timeout-ms", "scan --idle-ms", "hub --session-ms"} <= found.keys()
    for name, parameter in found.items():
        assert parameter.process_value(context, "1m30s") == 90_000, name


@pytest.mark.parametrize(
    "arguments", [("--operation-timeout-ms", "5x", "list"), ("scan", "q", "-f", "--idle-ms", "0")]
)
def test_a_wrong_one_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    code, out, err = run_here(arguments, b"", {"HOME": "/nonexistent"})
    assert (code, out) == (2, b"")
    assert "Invalid value" in err
