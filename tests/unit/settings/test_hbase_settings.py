"""Which way to HBase settings choose, where they leave it out too."""

from __future__ import annotations

import contextlib

import pytest

from hqueue import GatewayAddress, Settings, SettingsError
from hqueue.connecting import open_store
from hqueue.hbase import GatewayStore, NativeStore

HERE = (GatewayAddress("127.0.0.1"),)
THERE = (GatewayAddress("there", 1, 2),)


@pytest.mark.parametrize(
    ("given", "hbase", "gateways"),
    [
        ({}, "native", ()),
        ({"gateways": ""}, "native", ()),
        ({"gateways": "there:1/2"}, "gateways", THERE),
        ({"hbase": "gateways"}, "gateways", HERE),
        ({"hbase": "gateways", "gateways": "there:1/2"}, "gateways", THERE),
        ({"hbase": "native"}, "native", ()),
        ({"hbase": "native", "gateways": "there:1/2"}, "native", THERE),
    ],
)
def test_gateways_are_chosen_where_they_are_given_and_native_otherwise(
    given: dict[str, str], hbase: str, gateways: tuple[GatewayAddress, ...]
) -> None:
    settings = Settings(**given)  # type: ignore[arg-type]
    assert (settings.hbase, settings.gateways) == (hbase, gateways)
    with contextlib.closing(open_store(settings)) as store:
        assert type(store) is (NativeStore if hbase == "native" else GatewayStore)


@pytest.mark.parametrize(
    "wrong",
    [{"hbase": "Native"}, {"hbase": "thrift"}, {"hbase": 1}, {"hbase_znode_parent": "hbase"},
     {"hbase_znode_parent": "/"}, {"hbase_znode_parent": "/a/../b"}],
)  # fmt: skip
def test_a_wrong_way_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        Settings(**wrong)  # type: ignore[arg-type]
