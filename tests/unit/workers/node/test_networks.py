"""Which hosts a hub may call."""

from __future__ import annotations

import pytest

from hqueue import SettingsError
from hqueue_workers.node.networks import Networks


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("127.0.0.1", True),
        ("10.255.0.1", True),
        ("172.16.0.1", True),
        ("172.32.0.1", False),
        ("192.168.3.4", True),
        ("169.254.169.254", False),
        ("8.8.8.8", False),
        ("0.0.0.0", False),
        ("::1", True),
        ("fd12::1", True),
        ("fe80::1%eth0", False),
        ("2001:db8::1", False),
        ("::ffff:8.8.8.8", False),
        ("::ffff:10.0.0.1", True),
    ],
)
def test_private_means_what_no_stranger_beyond_reaches(address: str, private: bool) -> None:
    assert Networks("private").have(address) == private
    assert Networks("private").may_have(address) == private
    assert Networks("any").have(address)


def test_networks_are_listed_and_names_are_judged_when_they_are_resolved() -> None:
    networks = Networks("203.0.113.0/24, private")
    assert networks.have("203.0.113.7")
    assert networks.have("127.0.0.1")
    assert not networks.have("203.0.114.7")
    assert networks.may_have("some.host")


@pytest.mark.parametrize("text", ["", " , ", "10.0.0.0/33", "10.0.0.1/8", "host", "private,x"])
def test_what_is_no_network_is_an_error_of_the_settings(text: str) -> None:
    with pytest.raises(SettingsError):
        Networks(text)
