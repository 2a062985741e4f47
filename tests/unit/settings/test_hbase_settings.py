"""Which way to HBase settings choose, where they leave it out too."""

from __future__ import annotations

import contextlib

import pytest

from hqueue import GatewayAddress, Settings, SettingsError
from hqueue.connecting import open_store
from hqueue.hbase.native import NativeStore
from hqueue.hbase.thrift.gateway_store import GatewayStore
from hqueue.settings.addresses import Address

HERE = (GatewayAddress("127.0.0.1"),)
THERE = (GatewayAddress("there", 1, 2),)


@pytest.mark.parametrize(
    ("given", "hbase", "gateways"),
    [
        ({}, "native", ()),
        ({"gateways": ""}, "native", ()),
        ({"gateways": "there:1/2"}, "gateways", THERE),
        ({"hbase_masters": "host"}, "native", ()),
        ({"hbase_masters": "host", "gateways": "there:1/2"}, "native", THERE),
        ({"hbase_masters": "host", "hbase": "gateways"}, "gateways", HERE),
        ({"hbase_masters": "", "gateways": "there:1/2"}, "gateways", THERE),
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
     {"hbase_znode_parent": "/"}, {"hbase_znode_parent": "/a/../b"}, {"hbase_masters": "host:"},
     {"hbase_masters": "host:x"}, {"hbase_masters": ["host:70000"]}, {"hbase_masters": "a b"},
     {"hbase_masters": 5}],
)  # fmt: skip
def test_a_wrong_way_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        Settings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    ["one:1,[::2]:16000, three", ["one:1", "[::2]", "three:16000"],
     [Address("one", 1), Address("::2", 16_000), Address("three", 16_000)]],
)  # fmt: skip
def test_masters_are_a_list_or_a_text_and_have_hbases_own_port(given: object) -> None:
    assert Settings(hbase_masters=given).hbase_masters == (  # type: ignore[arg-type]
        Address("one", 1),
        Address("::2", 16_000),
        Address("three", 16_000),
    )
    assert Settings(hbase_masters=Address("one", 1)).hbase_masters == (Address("one", 1),)  # type: ignore[arg-type]
