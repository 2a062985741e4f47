"""An unknown name is reported with the one that was probably meant, or with none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hqueue import HQueueError, Settings
from hqueue.settings.attributes import check_attributes
from hqueue.settings.loading import load_role_settings
from hqueue.settings.names import closest
from hqueue_workers.node.settings import WorkerSettings


@pytest.mark.parametrize(
    ("name", "meant"),
    [("gateway", "gateways"), ("GATEWAYS", "gateways"), ("startingoffset", "startingOffsets")],
)
def test_the_closest_name_is_found_whatever_its_case(name: str, meant: str) -> None:
    assert closest(name, ["codec", "gateways", "startingOffsets"]) == meant


@pytest.mark.parametrize("name", ["", "x", "something else", "gw"])
def test_where_no_name_is_close_there_is_none(name: str) -> None:
    assert closest(name, ["codec", "gateways"]) is None
    assert closest(name, []) is None


@pytest.mark.parametrize(
    ("check", "meant"),
    [
        (lambda name: Settings.load({name: 1}, {}), "gateways"),
        (lambda name: check_attributes({name: 1}), "compression"),
        (lambda name: load_role_settings(WorkerSettings, "worker", {name: 1}, {}), "threads"),
    ],
)
def test_an_unknown_name_is_told_with_one_that_is_close_only(
    check: Callable[[str], object], meant: str
) -> None:
    with pytest.raises(HQueueError, match="unknown") as raised:
        check(meant[:-1])
    assert raised.value.facts["closest"] == meant
    with pytest.raises(HQueueError, match="unknown") as raised:
        check("qqqq")
    assert "closest" not in raised.value.facts
