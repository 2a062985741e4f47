"""Real ZooKeepers that know who calls them: by Kerberos, by DIGEST-MD5, and in TLS."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hqueue import (
    Client,
    Consumer,
    RequestRefusedError,
    Settings,
    StoreUnavailableError,
    Subscription,
    local,
)
from hqueue.cli import main
from hqueue.connecting import open_node_access
from hqueue.errors import AuthenticationError
from hqueue.local.freeports import choose_ports
from hqueue.metadata.ports import NEW, Change, SessionState
from hqueue.runtime.clock import SYSTEM_CLOCK
from hqueue.zookeeper import ZooKeeperCoordination, ZooKeeperNodes, ZooKeeperStore
from hqueue.zookeeper.requests import get, get_acl
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.memory_store import MemoryStore
from tests.support.tls_servers import make_certificates
from tests.support.waiting import wait_for
from tests.support.zookeeper_faults import cut, zookeeper_proxy
from tests.support.zookeeper_server import ZooKeeperServer

from .pushing import SESSION_MS, Received, WorkerThread, put_numbers

pytestmark = pytest.mark.servers

SECRET = "'s secret"
JAAS = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  user_app="app's secret" user_worker="worker's secret";
};
"""
SHORT: dict[str, Any] = {"operation_timeout_ms": 4_000, "connect_timeout_ms": 1_000}
UNPROVEN: dict[str, Any] = {
    "zookeeper_authentication": "none", "zookeeper_principal": "zookeeper/_HOST"
}  # fmt: skip

Of = Callable[..., Settings]


def by_password(user: str, password: str | None = None) -> dict[str, Any]:
    return {
        "zookeeper_authentication": "digest",
        "zookeeper_auth": f"sasl:{user}:{password or user + SECRET}",
    }


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def demanding(
    certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A ZooKeeper that does nothing for those who prove nothing: in clear, and by TLS."""
    jaas = tmp_path_factory.mktemp("jaas") / "jaas.conf"
    jaas.write_text(JAAS)
    port = choose_ports(["secure"])["secure"]
    settings = {
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "sessionRequireClientSASLAuth": "true",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": port,
        "ssl.keyStore.location": certificates / "server.pem",
        "ssl.trustStore.location": certificates / "ca.pem",
    }
    options = [f"-Djava.security.auth.login.config={jaas}"]
    with ZooKeeperServer(settings, options=options) as server:
        yield server.zookeeper, f"127.0.0.1:{port}"


@pytest.fixture
def in_clear(demanding: tuple[str, str]) -> Of:
    root = f"/hqueue-{uuid.uuid4().hex[:12]}"
    return lambda **given: Settings(**{"zookeeper": demanding[0], "zookeeper_root": root, **given})


@pytest.fixture
def by_tls(demanding: tuple[str, str], certificates: Path) -> Of:
    root = f"/hqueue-{uuid.uuid4().hex[:12]}"

    def of(certificate: str | None = "client", authority: str = "ca", **given: Any) -> Settings:
        shown = certificate and str(certificates / f"{certificate}.pem")
        return Settings(
            **{
                "zookeeper": demanding[1], "zookeeper_root": root, "zookeeper_tls": True,
                "tls_ca": str(certificates / f"{authority}.pem"), "tls_certificate": shown, **given,
            }
        )  # fmt: skip

    return of


@pytest.fixture
def kerberized(secure_server: local.LocalServer) -> Of:
    root = f"/hqueue-{uuid.uuid4().hex[:12]}"
    return lambda **given: secure_server.settings(**{"zookeeper_root": root, **given})


def refusals(settings: Settings) -> list[str]:
    """Use ZooKeeper in each way in which HQueue does; why it was refused, for each that was."""
    reader = ZooKeeperNodes(settings)
    path = f"/{uuid.uuid4().hex}"
    refused: list[str] = []
    with contextlib.closing(ZooKeeperStore(settings)) as store:
        reads: list[Callable[[], object]] = [
            lambda: reader.read("/"),
            lambda: asyncio.run(reader.read.in_loop("/")),
            lambda: asyncio.run(store.records.read.in_loop([path])),
        ]
        # The write comes first: before it no session of the store was ended.
        for use in (lambda: store.records.write({path: Change(b"v", NEW)}), *reads):
            begun_s = time.monotonic()
            try:
                use()
            except AuthenticationError as exc:
                # A read whose first try was cut may say *unknown*; it changes nothing.
                outcome = "" if use in reads else f"{exc.outcome.name}: "
                refused.append(f"{outcome}{exc}")
            assert time.monotonic() - begun_s < 5
    return refused


def test_who_proves_itself_is_let_in_by_both_faces(
    in_clear: Of, by_tls: Of, kerberized: Of
) -> None:
    for settings in (
        in_clear(**by_password("app")),
        by_tls(**by_password("app")),
        kerberized(),
        kerberized(**UNPROVEN),  # This one lets everybody in, but not at all nodes.
    ):
        assert not refusals(settings)


def test_who_is_not_let_in_is_told_so_at_once_and_why(
    in_clear: Of, by_tls: Of, kerberized: Of, secure_server: local.LocalServer
) -> None:
    app = by_password("app")
    user = secure_server.settings().kerberos_principal
    for settings, text in (
        (in_clear(**by_password("app", "wrong")), "did not accept the user and the password"),
        (in_clear(), "set zookeeper_authentication"),
        (by_tls(**by_password("app", "wrong")), "did not accept the user and the password"),
        (by_tls(authority="other", **app), "server's certificate was not accepted"),
        (by_tls(certificate="stranger", **app), "check tls_certificate"),
        (by_tls(certificate=None, **app), "check tls_certificate"),
        (kerberized(zookeeper_principal="nobody/_HOST"), "compare zookeeper_principal"),
        (kerberized(zookeeper_principal=user), "did not accept this client's ticket"),
    ):
        refused = refusals(settings)
        assert len(refused) == 4, (text, refused)
        assert all(text in each for each in refused), refused
        assert not [each for each in refused if each.startswith("UNKNOWN")]


def test_a_session_that_was_lost_is_proven_again_before_it_is_connected(
    in_clear: Of, kerberized: Of
) -> None:
    for of, given in ((in_clear, by_password("app")), (kerberized, {})):
        with (
            zookeeper_proxy(of(**given).zookeeper) as proxy,
            contextlib.closing(
                ZooKeeperStore(of(zookeeper=f"127.0.0.1:{proxy.port}", **given))
            ) as store,
        ):
            path = f"{store.session.settings.zookeeper_root}/e"
            store.ephemerals.put([{path: b"1"}], is_own=lambda _: False, parents=True)
            before = store.session_id
            for _ in range(3):
                with cut(proxy):
                    wait_for(lambda: store.state is SessionState.SUSPENDED, "it is cut")
                wait_for(lambda: store.state is SessionState.CONNECTED, "it is back")
                # In one try: the node is the principal's alone.
                assert store.session.one(path, get(path), store.session.deadline())[0] == b"1"
            assert store.session_id == before


def test_a_kdc_that_is_silent_is_waited_for_and_nothing_says_connected(
    kerberized: Of, secure_server: local.LocalServer
) -> None:
    with zookeeper_proxy(secure_server.zookeeper) as proxy:
        settings = kerberized(zookeeper=f"127.0.0.1:{proxy.port}", connect_timeout_ms=500)
        with contextlib.closing(ZooKeeperStore(settings)) as store:
            store.records.read(["/"])
            security = store.session.members._security
            secure_server.pause("kdc")
            try:
                proxy.break_connections()
                store.records.read(["/"])  # By the ticket that it has.
                security._login.renew(security._login.generation)
                proxy.break_connections()
                begun_s = time.monotonic()
                with (
                    contextlib.closing(ZooKeeperStore(kerberized(**SHORT))) as other,
                    pytest.raises(StoreUnavailableError, match="can't be reached") as caught,
                ):
                    other.records.read(["/"])
                assert "did not answer in time" in str(caught.value)
                assert time.monotonic() - begun_s < 8
                assert store.state is not SessionState.CONNECTED
            finally:
                secure_server.resume("kdc")
            store.records.read(["/"])


def test_nodes_are_the_principals_and_open_ones_are_closed_by_a_command(
    kerberized: Of,
    secure_server: local.LocalServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    principal = (secure_server.settings().kerberos_principal or "").partition("@")[0]
    root = kerberized().zookeeper_root
    (tmp_path / "none.toml").touch()
    monkeypatch.setenv("HQUEUE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("HQUEUE_LOCAL_HOME", str(secure_server.home))
    command = ["--zookeeper-root", root, "secure-nodes"]
    with (
        contextlib.closing(ZooKeeperStore(kerberized())) as own,
        contextlib.closing(ZooKeeperStore(kerberized(**UNPROVEN))) as stranger,
    ):
        own.records.write({f"{root}/own/a": Change(b"", NEW)})
        with pytest.raises(RequestRefusedError, match="ACL of the node"):
            stranger.records.read([f"{root}/own/a"])
        with open_node_access(kerberized()) as access:
            assert access.acl_text == "auth::cdrwa"
            assert not any(node.is_open for node in access.survey())
        other = f"{root}-open"
        stranger.records.write({f"{other}/a/{number}": Change(b"", NEW) for number in range(9)})
        stranger.ephemerals.put([{f"{other}/e": b""}], is_own=lambda _: False)
        command[1] = other
        assert main(command) == 1
        assert capsys.readouterr().out == (
            f"12 of 12 nodes below {other} can be changed by anyone (a 10, e 1, the root 1): close "
            "them with --apply.\n"
        )
        assert main([*command, "--apply", "--yes"]) == 0
        assert capsys.readouterr().out == f"Closed 12 of 12 nodes below {other}.\n"
        assert main(command) == 0
        with pytest.raises(RequestRefusedError, match="ACL of the node"):
            stranger.records.read([f"{other}/a/1"])
        path = f"{other}/e"
        found, _ = own.session.one(path, get_acl(path), own.session.deadline())
        assert [entry.id.id for entry in found] == [principal]


def test_a_consumer_and_a_worker_share_nodes_as_two_principals(
    by_tls: Of, demanding: tuple[str, str]
) -> None:
    cluster = MemoryCluster()
    both = "sasl:app:cdrwa,sasl:worker:cdrwa"

    def client_of(user: str) -> Client:
        made = by_tls(
            **by_password(user),
            zookeeper_acl=both,
            zookeeper_session_timeout_ms=SESSION_MS,
        )
        store = MemoryStore(cluster, made, SYSTEM_CLOCK)
        return Client(
            made, store, lambda loop: ZooKeeperCoordination(made, loop=loop), SYSTEM_CLOCK
        )

    with client_of("app") as app, client_of("worker") as workers, WorkerThread(workers):
        app.create_queue("q", partitions=2)
        queue = app.queue("q")
        values = put_numbers(queue, range(10))
        got = Received()
        with queue.subscriber(Subscription("s"), got):
            got.await_values(values)
        with contextlib.closing(Consumer(["q"], group="g", client=app)) as consumer:
            taken: list[bytes] = []
            while len(taken) < 10:
                taken += [message.value for message in consumer.poll(timeout_ms=10_000)]
            consumer.commit()
        assert sorted(taken) == sorted(values)
