"""Who can't be reached is named before a command goes on trying."""

from __future__ import annotations

import pytest

from hqueue import Settings
from hqueue.cli.absence import hbase_absence
from tests.support.registries import NOWHERE

AWAY = str(NOWHERE)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"gateways": f"{AWAY}/1"}, f"no gateway answers at {AWAY}/1"),
        ({"hbase_masters": f"{AWAY},{AWAY}"}, f"no master answers at {AWAY}, {AWAY}"),
        ({}, f"no ZooKeeper answers at {AWAY}"),
    ],
)
def test_those_are_named_by_whom_hbase_is_found(
    given: dict[str, str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    absence = hbase_absence(Settings(zookeeper=AWAY, **given))  # type: ignore[arg-type]
    absence.say(trying=True)
    assert named in capsys.readouterr().err
