"""Which servers may be called without TLS, while a cluster is moved to it."""

from __future__ import annotations

import ssl

import pytest

from hqueue.net.plaintext_servers import LASTS_MS, SERVERS_MAX, PlaintextServers
from hqueue.net.refusals import NotTlsError, RefusedError
from tests.support.doubles import SteppedClock

ENDED = [NotTlsError("it does not speak TLS"), ConnectionResetError(), ssl.SSLEOFError()]


@pytest.mark.parametrize("error", ENDED)
def test_a_server_that_answered_no_handshake_is_called_without_for_a_minute(
    error: OSError,
) -> None:
    clock = SteppedClock()
    servers = PlaintextServers(clock)
    assert not servers.has("h", 1)
    assert servers.adds("h", 1, error)
    assert servers.has("h", 1)
    assert not servers.has("h", 2)
    clock.now_ms += LASTS_MS
    assert not servers.has("h", 1)


@pytest.mark.parametrize("error", ENDED)
def test_one_that_has_spoken_tls_is_not_called_without_for_a_minute(error: OSError) -> None:
    clock = SteppedClock()
    servers = PlaintextServers(clock)
    servers.spoke_tls("h", 1)
    assert not servers.adds("h", 1, error)
    assert not servers.has("h", 1)
    clock.now_ms += LASTS_MS
    assert servers.adds("h", 1, error)


@pytest.mark.parametrize(
    "error", [RefusedError("the certificate"), TimeoutError(), ssl.SSLError(), OSError()]
)
def test_what_else_ends_a_handshake_says_nothing_of_that(error: OSError) -> None:
    servers = PlaintextServers(SteppedClock())
    assert not servers.adds("h", 1, error)
    assert not servers.has("h", 1)


def test_so_many_servers_are_remembered() -> None:
    servers = PlaintextServers(SteppedClock())
    for number in range(SERVERS_MAX + 1):
        servers.adds("h", number, ConnectionResetError())
    assert [servers.has("h", number) for number in (0, 1, SERVERS_MAX)] == [False, True, True]
