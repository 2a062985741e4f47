"""Every port in the table of docs/ports.md, attacked: by a stranger, with a wrong certificate,
an expired one, the right one without the right, and what was recorded of a caller that may call.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hqueue.net.alerts import TLS_IS_SPOKEN
from hqueue.net.contexts import TlsContexts
from hqueue.net.tls_files import TlsFiles
from hqueue.settings.addresses import Address
from tests.strangers.honest import CALLS, GOOD, publishing
from tests.strangers.proof import HONEST, READER
from tests.strangers.served import ROLES
from tests.support.certificates import Certificates
from tests.support.notifications import frame_of
from tests.support.recorded import BOUND_S, RecordedCaller, heard
from tests.support.waiting import wait_for
from tests.support.watched_ports import WatchedPorts, watched

ROOT = Path(__file__).parents[2]
ROWS = {
    "a worker's": "notified",
    "a hub's": "hub",
    "a hub client's, if it has subscriptions": "hub's client",
    "the Thrift API's, if it is served": "api",
    "metrics and health": "health",
    "a subscriber's": "subscriber",
}
"""The rows of the table, and the port that is attacked for each."""
ELSEWHERE = {
    "ZooKeeper's, with rights below the root": "tests/integration/test_zookeeper_security.py"
}
"""Rows of ports that are not ours: what they protect is forged there."""

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
TOMORROW = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)


class Attacked(NamedTuple):
    """What a port speaks."""

    protocol: str
    guarded: str
    """What its guard calls it."""
    call: bytes
    forbidden: bytes
    """In the answer to a call without the right; empty if there is none."""


PORTS = {
    "hub": Attacked("hub", "hub", CALLS["hub"], b"the caller may not do this"),
    "api": Attacked("api", "api", CALLS["api"], b"api_principals"),
    "notified": Attacked("notified", "notifications", frame_of("q", [0]), b""),
    "subscriber": Attacked("subscriber", "subscriber", CALLS["subscriber"], b"delivery_principals"),
    "hub's client": Attacked(
        "subscriber", "subscriber", CALLS["subscriber"], b"delivery_principals"
    ),
    "health": Attacked("health", "metrics", CALLS["health"], b"metrics_principals"),
}


class Scene:
    """One port, and what callers of it have."""

    def __init__(
        self, name: str, address: Address, certificates: Certificates, seen: WatchedPorts
    ) -> None:
        self.attacked = PORTS[name]
        self.address = address
        self.seen = seen
        self._certificates = certificates

    def context(
        self, name: str | None, version: ssl.TLSVersion | None = None, **made: Any
    ) -> ssl.SSLContext:
        """What a client has that shows the certificate of a principal; none if None."""
        found = self._certificates.of(name or HONEST, **made)
        shown = found["tls_certificate"] if name else None
        context = TlsContexts(TlsFiles(found["tls_ca"], shown)).current()
        if version is not None:
            context.maximum_version = context.minimum_version = version
        return context

    def caller(self, *context: Any, **more: Any) -> RecordedCaller:
        return RecordedCaller(self.address, self.context(*context, **more))

    def call(self, caller: RecordedCaller, name: str) -> None:
        """Make the call as a principal that may, and see that it is served once."""
        protocol, before = self.attacked.protocol, self.seen.served.count(name)
        good = GOOD.get(protocol, lambda answer: True)
        answer = caller.call(self.attacked.call, good)
        assert good(answer), answer
        wait_for(lambda: self.seen.served.count(name) == before + 1, "the call is served")

    def is_served(self, name: str) -> None:
        """See that a principal that may call is served."""
        with self.caller(name) as caller:
            caller.shake()
            self.call(caller, name)

    @contextlib.contextmanager
    def refused(self, kind: str = "handshake", by: str | None = None) -> Iterator[list[str]]:
        """See that a block of code is refused once, and that nothing of it is served; why."""
        refused, served = len(self.seen.refused), self._served()
        why: list[str] = []
        yield why
        wait_for(lambda: len(self.seen.refused) > refused, "it is counted")
        ((port, found_kind, principal, reason),) = self.seen.refused[refused:]
        assert (port, found_kind, principal) == (self.attacked.guarded, kind, by), reason
        why.append(reason)
        assert self._served() == served
        self.is_served(f"{HONEST}-later")

    def _served(self) -> dict[str | None, int]:
        """Whose requests were served: those of the roles themselves go on."""
        own = {"hub", "worker", "subscriber", f"{HONEST}-producer"}
        return {name: self.seen.served.count(name) for name in {*self.seen.served} - own}


def rows() -> list[str]:
    """The first column of the table of ports."""
    page = (ROOT / "docs/ports.md").read_text("utf-8")
    table = re.search(r"^\| port \| what a stranger.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.M)
    assert table, "there is no table of ports"
    return [line.split("|")[1].strip() for line in table[1].splitlines()]


def test_every_row_of_the_table_of_ports_is_attacked() -> None:
    assert sorted(rows()) == sorted((*ROWS, *ELSEWHERE))
    assert sorted(ROWS.values()) == sorted(PORTS)
    assert all((ROOT / file).exists() for file in ELSEWHERE.values())


@pytest.fixture(scope="module")
def seen() -> Iterator[WatchedPorts]:
    with watched() as made:
        yield made


@pytest.fixture(scope="module")
def addresses(seen: WatchedPorts, certificates: Certificates) -> Iterator[dict[str, Address]]:
    """All ports, served by their roles."""

    def proof(principal: str) -> dict[str, Any]:
        delivers = f"{HONEST}*" if principal == "subscriber" else "worker"
        return {**certificates.of(principal), "delivery_principals": delivers}

    certificates.authority("others")
    with contextlib.ExitStack() as stack:
        found: dict[str, Address] = {}
        for role in ROLES.values():
            ports, _ = stack.enter_context(role(proof))
            found |= {name: Address("127.0.0.1", port) for name, port in ports.items()}
        yield found


@pytest.fixture(params=ROWS)
def scene(
    request: pytest.FixtureRequest,
    addresses: dict[str, Address],
    certificates: Certificates,
    seen: WatchedPorts,
) -> Scene:
    name = ROWS[request.param]
    return Scene(name, addresses[name], certificates, seen)


def test_a_stranger_in_clear_learns_that_tls_is_spoken_and_nothing_is_done(scene: Scene) -> None:
    with scene.refused(), socket.create_connection(scene.address, BOUND_S) as stranger:
        stranger.sendall(scene.attacked.call)
        assert heard(stranger) == TLS_IS_SPOKEN


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("name", "made", "alert"),
    [
        (None, {}, "CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE"),
        ("forged", {"authority": "others"}, "UNKNOWN_CA"),
        ("expired", {"days": -1}, "CERTIFICATE_EXPIRED"),
        ("early", {"begins": TOMORROW}, "BAD_CERTIFICATE"),
        ("of-a-server", {"usage": "serverAuth"}, "UNSUPPORTED_CERTIFICATE"),
    ],
    ids=["none", "of another authority", "expired", "not yet valid", "for servers only"],
)
def test_a_wrong_certificate_is_refused_in_the_handshake(
    scene: Scene, name: str | None, made: dict[str, Any], alert: str, version: ssl.TLSVersion
) -> None:
    with scene.refused(), scene.caller(name, version, **made) as caller:
        with pytest.raises(ssl.SSLError) as caught:
            caller.converse(scene.attacked.call)
        assert re.search(alert, str(caught.value.reason))


def test_the_right_certificate_without_the_right_does_nothing(scene: Scene) -> None:
    attacked = scene.attacked
    # At a hub everybody may call, and the authorizer decides for each topic: this one is new.
    call = publishing(b"of-the-reader") if attacked.protocol == "hub" else attacked.call
    refused = (
        contextlib.nullcontext()
        if attacked.protocol == "hub"
        else scene.refused("principal", READER)
    )
    with refused, scene.caller(READER) as caller:
        caller.shake()
        assert attacked.forbidden in caller.call(call, bool)


def test_a_certificate_of_which_no_rule_makes_a_principal_does_nothing(scene: Scene) -> None:
    with scene.refused() as why, scene.caller("nameless", subject="/O=Tests") as caller:
        caller.shake()
        answer = caller.call(scene.attacked.call, bool)
        assert b"tls_principal_rules" in answer or not scene.attacked.forbidden
    assert "no rule makes a principal of this certificate" in why[0]


def _recorded(scene: Scene, name: str, version: ssl.TLSVersion) -> list[bytes]:
    """What a caller that may call sends, piece by piece, the call itself last."""
    with scene.caller(name, version) as caller:
        caller.shake()
        scene.call(caller, name)
        return caller.sent


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_connection_is_nothing_worth(
    scene: Scene, version: ssl.TLSVersion, together: bool
) -> None:
    pieces = _recorded(scene, f"{HONEST}-recorded", version)
    with scene.refused(), socket.create_connection(scene.address, BOUND_S) as replayed:
        for piece in [b"".join(pieces)] if together else pieces:
            with contextlib.suppress(ConnectionError):
                replayed.sendall(piece)
                if piece is pieces[0]:
                    assert replayed.recv(65_536)
        heard(replayed)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_recorded_call_is_nothing_worth_behind_an_own_handshake(
    scene: Scene, version: ssl.TLSVersion
) -> None:
    call = _recorded(scene, f"{HONEST}-recorded", version)[-1]
    before = len(scene.seen.served)
    with scene.caller(f"{HONEST}-thief", version) as thief:
        thief.shake()
        thief.socket.sendall(call)
        heard(thief.socket)
    assert f"{HONEST}-thief" not in scene.seen.served
    assert f"{HONEST}-recorded" not in scene.seen.served[before:]
    scene.is_served(f"{HONEST}-later")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_session_is_resumed(scene: Scene, version: ssl.TLSVersion) -> None:
    name = f"{HONEST}-again"
    context = scene.context(name, version)
    with (
        RecordedCaller(scene.address, context) as early,
        RecordedCaller(scene.address, context) as first,
    ):
        first.shake()
        scene.call(first, name)
        session = first.tls.session  # The server keeps it while the connection is open, at least.
        with RecordedCaller(scene.address, context, session) as again:
            again.shake()
            assert not again.tls.session_reused
            scene.call(again, name)
        if version is ssl.TLSVersion.TLSv1_3:
            return
        # The server has taken this connection in when there was no session yet.
        with scene.refused() as why:
            early.tls.session = session
            early.shake()
            assert early.tls.session_reused
            early.call(scene.attacked.call, bool)
        assert "must authenticate again" in why[0]


def test_renegotiation_is_refused(scene: Scene, certificates: Certificates) -> None:
    own = certificates.of(f"{HONEST}-again")
    done = subprocess.run(
        ["openssl", "s_client", "-tls1_2", "-connect", str(scene.address), "-CAfile",
         own["tls_ca"], "-cert", own["tls_certificate"]],
        input="R\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "no renegotiation" in done.stderr
    scene.is_served(f"{HONEST}-later")
