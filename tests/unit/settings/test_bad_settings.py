"""Settings and texts that no parser beneath takes, or takes too much of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import hqueue
import hqueue.aio
from hqueue import (
    GatewayAddress,
    HQueueError,
    InvalidInputError,
    MessageID,
    Settings,
    SettingsError,
)
from hqueue.settings.attributes import check_attributes
from hqueue.settings.numbers import whole_number

DIGITS = "9" * 5_000
"""More than Python makes a number of."""


@pytest.mark.parametrize(
    "parse",
    [
        lambda: GatewayAddress.parse(f"host:{DIGITS}/1"),
        lambda: Settings.load({"request_timeout_ms": DIGITS}, {}),
        lambda: check_attributes({"compaction_files_min": DIGITS}),
        lambda: MessageID.parse(f"{DIGITS}-0"),
    ],
)
def test_thousands_of_digits_are_no_number(parse: Callable[[], object]) -> None:
    with pytest.raises((SettingsError, InvalidInputError)) as raised:
        parse()
    assert isinstance(raised.value, HQueueError)


def test_an_attribute_that_is_no_number_is_shown_as_it_was_given() -> None:
    with pytest.raises(InvalidInputError) as raised:
        check_attributes({"compaction_files_min": "many"})
    assert raised.value.value == "many"


@pytest.mark.parametrize("text", ["", " 1", "-1", "+1", "1_0", "²", "٣", "1.0"])
def test_only_ascii_digits_are_a_number(text: str) -> None:
    assert whole_number(text) is None


def test_a_settings_file_that_is_nested_too_deep_can_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "hqueue.toml"
    path.write_text("transport = " + "[" * 5_000)
    with pytest.raises(SettingsError) as raised:
        Settings.load({}, {"HQUEUE_CONFIG": str(path)})
    assert raised.value.file == str(path)


@pytest.mark.parametrize("connect", [hqueue.connect, hqueue.aio.connect])
def test_a_connect_to_hubs_names_the_function_for_hubs(connect: Callable[..., object]) -> None:
    with pytest.raises(SettingsError, match="call connect_hubs"):
        connect(hubs="hosta:9190")


@pytest.mark.parametrize(
    ("given", "meant"), [(True, True), ("false", False), ("1", True), (" False ", False)]
)
def test_a_switch_is_true_or_false(given: object, meant: bool) -> None:
    assert Settings.load({"notify_workers": given}, {}).notify_workers is meant


@pytest.mark.parametrize("given", ["", "yes", 1, "2"])
def test_what_is_neither_true_nor_false_is_no_switch(given: object) -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.load({"notify_workers": given}, {})
    assert raised.value.value == given


@pytest.mark.parametrize("given", ["", "hbase:meta", "default:", "-a", "a/b", "x" * 201, 5, "ä"])
def test_what_no_table_can_be_called_is_no_metadata_table(given: object) -> None:
    with pytest.raises(SettingsError):
        Settings.load({"metadata_table": given}, {})


@pytest.mark.parametrize("given", [":::", "localhost:99999", "a:1,", "a:1,,b:2", "a b:1", "/path"])
def test_what_names_no_zookeeper_is_refused_when_the_settings_are_made(given: str) -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.load({"zookeeper": given}, {})
    assert raised.value.zookeeper == given
    with pytest.raises(SettingsError):
        hqueue.connect(zookeeper=given)


def test_an_address_in_place_of_settings_is_refused_with_what_to_write() -> None:
    with pytest.raises(SettingsError, match="zookeeper="):
        hqueue.connect("host:2181")  # type: ignore[call-overload]


def test_a_host_with_a_port_twice_is_no_master() -> None:
    for given in ("h:1:2", "[h:1]:2", "::1", "[::1"):
        with pytest.raises(SettingsError):
            hqueue.connect(hbase_masters=given)
    assert Settings.load({"hbase_masters": "[::1]:2"}, {}).hbase_masters[0].host == "::1"


def test_the_metadata_table_may_be_in_a_namespace() -> None:
    assert Settings.load({"metadata_table": "ns:topics"}, {}).metadata_table == "ns:topics"
