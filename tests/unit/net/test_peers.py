"""The addresses of those at the other end of connections."""

from __future__ import annotations

import pytest

from hqueue.net.peers import address_text


@pytest.mark.parametrize(
    ("peer", "text"),
    [
        (("10.0.0.7", 40001), "10.0.0.7:40001"),
        (("fe80::1", 40001, 0, 2), "[fe80::1]:40001"),
        ("", ""),
    ],
)
def test_an_address_is_written_as_in_the_settings(peer: object, text: str) -> None:
    assert address_text(peer) == text
