"""What can't be measured is refused before a server starts; by ``make test-kafka``."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["warp"], "warp"),
        (["--rounds", "0"], "--rounds"),
        (["--scale", "2"], "--scale"),
        (["one", "--folder", "{tmp}"], "--folder"),
    ],
)
def test_wrong_options_are_refused_and_named(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    from .__main__ import main  # noqa: PLC0415  (the libraries of Kafka)

    app = typer.Typer()
    app.command()(main)
    done = CliRunner().invoke(app, [text.format(tmp=tmp_path) for text in arguments])
    assert done.exit_code == 2
    assert said in done.output
