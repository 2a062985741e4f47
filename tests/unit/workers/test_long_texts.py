"""Texts of strangers: how long one is, is seen before anything is done with it."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from hqueue import Address, InvalidInputError
from hqueue.settings.limits import HOST_LENGTH_MAX
from hqueue_workers.api import structs
from hqueue_workers.hub.serving import answers, subscription_service

LONG = "ä" * (4 << 20)


@pytest.mark.parametrize(
    "read",
    [
        lambda: Address.parse(f"{LONG}:1"),
        lambda: Address.parse(f"h:{LONG}"),
        lambda: answers.text_of(LONG.encode(), "topic"),
        lambda: structs.text_of(LONG.encode(), "topic"),
        lambda: answers.acl_lists_of(SimpleNamespace(publish=[LONG.encode()])),
        lambda: subscription_service.delivery_of(
            SimpleNamespace(host=LONG.encode(), port=1, session=b"s", explicitConsume=None)
        ),
        lambda: subscription_service.preferences_of(SimpleNamespace(application={b"n": LONG})),
    ],
)
def test_a_text_that_is_too_long_is_refused_at_once_and_its_error_is_short(read: object) -> None:
    began_s = time.process_time()
    with pytest.raises(InvalidInputError) as raised:
        read()  # type: ignore[operator]
    assert time.process_time() - began_s < 0.1
    assert len(str(raised.value)) < 1_000


def test_a_host_may_have_the_length_that_the_dns_allows() -> None:
    host = ".".join(["h" * 49] * 5) + "." + "h" * 3
    assert len(host) == HOST_LENGTH_MAX
    assert Address.parse(f"{host}:65535") == Address(host, 65_535)
