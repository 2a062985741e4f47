"""A real HBase that asks for Kerberos and speaks TLS: who is let in, who is not and why, and what
goes on while tickets expire, keys change and the KDC is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hqueue
import hqueue.aio
from hqueue import Message, Outcome, StoreUnavailableError, local
from hqueue.connecting import open_store
from hqueue.errors import AuthenticationError
from hqueue.local.certificates import make_authority, make_certificate
from hqueue.local.configuration import Launcher
from hqueue.local.freeports import choose_ports
from hqueue.local.process import ProcessPlan
from hqueue.net.contexts import TlsContexts
from hqueue.net.gssapi import Context, Credential
from hqueue.net.tokens import DelegationToken
from hqueue.settings.addresses import Address
from tests.support.added_processes import added, security_options_of, settings_of
from tests.support.moving import RegionMover
from tests.support.native_hbase import security_of
from tests.support.registries import master_of
from tests.support.traffic import Traffic
from tests.support.waiting import wait_for

pytestmark = pytest.mark.servers

IN_CLEAR: dict[str, Any] = {
    "hbase_tls": False, "tls": False, "tls_ca": None, "tls_certificate": None
}  # fmt: skip
TO_HBASE_ALONE: dict[str, Any] = {
    "zookeeper_authentication": "none", "zookeeper_principal": "zookeeper/_HOST"
}  # fmt: skip
UNPROVEN: dict[str, Any] = {
    "hbase_authentication": "simple", "kerberos_principal": None, "kerberos_keytab": None,
    "kerberos_config": None, **TO_HBASE_ALONE,
}  # fmt: skip
SHORT: dict[str, Any] = {"operation_timeout_ms": 5_000, "connect_timeout_ms": 1_000}
EACH_TIME_ANOTHER: dict[str, Any] = {"connection_idle_ms": 1}
"""A connection that was idle for longer is replaced."""

OUTLIVE = Path(__file__).parent / "programs" / "outlive_tickets.py"

Connect = Callable[..., hqueue.Client]


@pytest.fixture
def connect(secure_server: local.LocalServer) -> Iterator[Connect]:
    with contextlib.ExitStack() as stack:
        yield lambda **given: stack.enter_context(hqueue.connect(secure_server.settings(**given)))


@pytest.fixture(scope="module")
def name(secure_server: local.LocalServer) -> str:
    """A queue that all tests share; each reads what it wrote itself."""
    name = f"secure-{uuid.uuid4().hex[:8]}"
    with hqueue.connect(secure_server.settings()) as client:
        client.create_queue(name, partitions=2)
    return name


@pytest.fixture
def fresh(secure_server: local.LocalServer) -> str:
    """A queue of a test's own."""
    name = f"secure-{uuid.uuid4().hex[:8]}"
    with hqueue.connect(secure_server.settings()) as client:
        client.create_queue(name, partitions=2)
    return name


def put_and_find(client: hqueue.Client, name: str, size: int = 1_000) -> None:
    """Both faces write, each reads what the other one wrote."""
    marks = [uuid.uuid4().bytes for _ in range(2)]
    queue = client.queue(name)
    queue.put(Message("t", marks[0] + bytes(size)))

    async def run() -> list[bytes]:
        looped = await hqueue.aio.Client(client).queue(name)
        await asyncio.gather(*(looped.put(Message("t", marks[1] + bytes(size))) for _ in range(3)))
        async with looped.scan() as messages:
            return [message.value[:16] async for message in messages]

    found = asyncio.run(run())
    assert [found.count(mark) for mark in marks] == [1, 3]
    values = [message.value[:16] for message in queue.scan()]
    assert [values.count(mark) for mark in marks] == [1, 3]


@pytest.mark.parametrize("tls", [None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("protection", ["authentication", "integrity", "privacy"])
def test_both_faces_write_and_read_under_every_protection(
    connect: Connect,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    protection: str,
    tls: ssl.TLSVersion | None,
) -> None:
    if tls is not None:
        load = TlsContexts.current

        def of_version(client: TlsContexts) -> ssl.SSLContext:
            context = load(client)
            context.maximum_version = context.minimum_version = tls
            return context

        monkeypatch.setattr(TlsContexts, "current", of_version)
    put_and_find(
        connect(hbase_protection=protection, **(IN_CLEAR if tls is None else {})), name, 300_000
    )


def test_masters_name_the_servers_to_who_proves_itself(
    connect: Connect, secure_server: local.LocalServer, name: str
) -> None:
    put_and_find(connect(hbase_masters=str(master_of(secure_server))), name)
    with pytest.raises(AuthenticationError):
        connect(hbase_masters=str(master_of(secure_server)), **UNPROVEN, **SHORT).queue(name)


def test_a_server_that_may_have_one_of_two_principals_says_which(
    secure_server: local.LocalServer,
) -> None:
    master = master_of(secure_server)
    (ports,) = [each.ports for each in secure_server.processes if each.name == "master"]
    regionserver = master._replace(port=ports["regionserver"])

    def cluster_id(server: Address, **given: Any) -> str:
        settings = secure_server.settings(hbase_masters=str(server), **{**given, **SHORT})
        with contextlib.closing(open_store(settings)) as store:
            return store.cluster_id()

    real = secure_server.settings().hbase_principal
    whole = cluster_id(master)
    # The master's answer is who it was before it had its tickets: HBase 2.6.1 has it so.
    assert cluster_id(master, hbase_principal="other/_HOST", hbase_master_principal=real) == whole
    assert cluster_id(regionserver, hbase_master_principal="other/_HOST") == whole
    for server in (master, regionserver):
        with pytest.raises(AuthenticationError, match="compare hbase_principal"):
            cluster_id(server, hbase_principal="one/_HOST", hbase_master_principal="other/_HOST")


def _of(secure_server: local.LocalServer, kind: str, tmp_path: Path) -> dict[str, Any]:
    """Settings of a client that is not let in."""
    folder = secure_server.home / "conf" / "security"
    nowhere = str(tmp_path / "nowhere")
    if kind.endswith("stranger"):
        shutil.copy(folder / "ca.pem", tmp_path)
        make_authority(tmp_path, "other")
        make_certificate(tmp_path, "stranger", hosts="DNS:localhost", authority="other")
    return {
        "unproven": {**UNPROVEN},
        "unproven in clear": {**UNPROVEN, **IN_CLEAR},
        "unproven stranger": {**UNPROVEN, "tls_certificate": str(tmp_path / "stranger.pem")},
        "unknown server": {"hbase_principal": "nobody/_HOST"},
        "another server": {"hbase_principal": secure_server.settings().kerberos_principal},
        "unknown client": {"kerberos_principal": "nobody"},
        "no ticket": {"kerberos_keytab": None, "kerberos_ticket_cache": f"FILE:{nowhere}"},
        "no keytab": {"kerberos_keytab": nowhere},
        "unknown authority": {"tls": False, "tls_ca": None},
        "stranger": {"tls_certificate": str(tmp_path / "stranger.pem")},
        "no authority": {"tls_ca": nowhere},
    }[kind]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("unproven", "hbase_authentication='kerberos'"),
        ("unproven in clear", "hbase_authentication='kerberos'"),
        ("unknown server", "compare hbase_principal"),
        ("another server", "see the server's log"),
        ("unknown client", "check kerberos_keytab and kerberos_principal"),
        ("no ticket", "there is no ticket: run kinit"),
        ("no keytab", "kerberos_keytab can't be read"),
        ("unknown authority", "compare its authority with tls_ca"),
        ("stranger", "check tls_certificate"),
        ("unproven stranger", "check tls_certificate"),
        ("no authority", "tls_ca can't be used"),
    ],
)
@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_refusal_is_final_and_says_what_to_look_at(
    secure_server: local.LocalServer, tmp_path: Path, face: str, kind: str, text: str
) -> None:
    settings = secure_server.settings(**_of(secure_server, kind, tmp_path))
    begun_s = time.monotonic()
    with contextlib.closing(open_store(settings)) as store:

        def ask() -> None:
            if face == "blocking":
                store.log("any").newest(0, 0)
            else:
                asyncio.run(store.async_log("any").newest(0, 0))

        with pytest.raises(AuthenticationError, match=text) as caught:
            ask()
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert time.monotonic() - begun_s < 5


def tickets(server: local.LocalServer, path: Path) -> str:
    """A cache with a ticket, as kinit makes one."""
    settings = server.settings()
    cache = f"FILE:{path}"
    store = {"client_keytab": f"FILE:{settings.kerberos_keytab}", "ccache": cache}
    credential = Credential(settings.kerberos_principal, store)
    Context(credential, "hbase/127.0.0.1", confidential=False).step(b"")
    return cache


def test_the_tickets_of_kinit_open_the_door(
    connect: Connect, secure_server: local.LocalServer, name: str, tmp_path: Path
) -> None:
    put_and_find(connect(), name)  # The process knows the configuration of Kerberos now.
    cache = tickets(secure_server, tmp_path / "tickets")
    given = {"kerberos_keytab": None, "kerberos_principal": None, "kerberos_ticket_cache": cache}
    put_and_find(connect(**given), name)
    os.unlink(tmp_path / "tickets")
    with pytest.raises(AuthenticationError, match="run kinit"):
        connect(**given, **SHORT).queue(name)
    put_and_find(connect(), name)


@pytest.mark.parametrize("given", [{}, {"hbase_protection": "integrity"}, IN_CLEAR])
def test_a_delegation_token_opens_the_door_and_gets_no_other(
    connect: Connect, secure_server: local.LocalServer, name: str, given: dict[str, Any]
) -> None:
    first = connect()
    token = first.delegation_token()
    assert token.principal == secure_server.settings().kerberos_principal
    assert 6 < (token.expires_ms / 1000 - time.time()) / 86_400 <= 7
    assert asyncio.run(hqueue.aio.Client(first).delegation_token()) != token
    by_token = {**UNPROVEN, "hbase_authentication": "token", **given}
    for masters in ({}, {"hbase_masters": str(master_of(secure_server))}):
        client = connect(**by_token, **masters)
        client.use_token(DelegationToken(token.identifier, bytes(20), "another cluster"))
        client.use_token(DelegationToken.from_bytes(token.to_bytes()))
        put_and_find(client, name)
        assert client.delegation_token() == token


def test_a_token_that_is_not_this_clusters_is_refused_for_good(
    connect: Connect, tmp_path: Path, name: str
) -> None:
    token = connect().delegation_token()
    file = tmp_path / "tokens"
    wrong = {
        "another cluster's": DelegationToken(token.identifier, bytes(20), token.service),
        "HBase can't read it": DelegationToken(b"\0\0\0\3abc", token.password, token.service),
    }
    given = {**UNPROVEN, "hbase_authentication": "token", "hbase_token_file": str(file)}
    for text, each in wrong.items():
        file.write_bytes(each.to_bytes())
        with pytest.raises(AuthenticationError, match=text) as caught:
            connect(**given).queue(name)
        assert token.password.hex() not in f"{caught.value!r} {caught.value.facts}"
    file.write_bytes(token.to_bytes())
    put_and_find(connect(**given), name)


def test_a_kdc_that_is_silent_or_starts_again_with_other_keys_costs_no_put(
    connect: Connect, secure_server: local.LocalServer, name: str, fresh: str
) -> None:
    with Traffic(partial(connect, **EACH_TIME_ANOTHER), fresh, connect) as traffic:
        traffic.await_passed(3)
        secure_server.pause("kdc")
        try:
            traffic.await_passed(10)  # By the tickets that they have.
            begun_s = time.monotonic()
            with pytest.raises(StoreUnavailableError, match="can't be reached") as caught:
                connect(**SHORT, **TO_HBASE_ALONE).queue(name)
            assert time.monotonic() - begun_s < 8
            assert caught.value.outcome is Outcome.NOT_APPLIED
            assert "did not answer in time" in str(caught.value)
        finally:
            secure_server.resume("kdc")
        put_and_find(connect(), name)
        # All keys are others then, those of HBase, too: it takes no ticket of before.
        with traffic.held():
            secure_server.kill("kdc")
            secure_server.restart("kdc")
        traffic.await_passed(20)
    put_and_find(connect(), name)


def test_of_a_server_whose_kdc_was_killed_alone_a_start_starts_only_that(
    connect: Connect, secure_server: local.LocalServer, name: str
) -> None:
    def pids() -> dict[str, int]:
        return {each.name: each.pid for each in secure_server.processes}

    folder, before = secure_server.home / "conf" / "security", pids()
    files = {each: each.read_bytes() for each in folder.glob("*.pem")}
    secure_server.kill("kdc")
    said: list[str] = []
    local.start("secure", home=secure_server.home, progress=said.append)
    assert [line for line in said if line.startswith("starting")] == ["starting kdc"]
    assert {each for each, pid in pids().items() if pid != before[each]} == {"kdc"}
    assert {each: each.read_bytes() for each in folder.glob("*.pem")} == files
    assert secure_server.status().ready
    put_and_find(connect(), name)


def test_changed_certificates_serve_from_the_next_connection_on(
    connect: Connect, secure_server: local.LocalServer, name: str, tmp_path: Path
) -> None:
    shown, trusted = tmp_path / "shown.pem", tmp_path / "trusted.pem"
    shutil.copy(secure_server.settings().tls_certificate or "", shown)
    # The client itself trusts the stranger's authority: else it would keep its certificate.
    known = Path(secure_server.settings().tls_ca or "").read_bytes()
    trusted.write_bytes(known + make_authority(tmp_path).read_bytes())
    client = connect(tls_certificate=str(shown), tls_ca=str(trusted), **EACH_TIME_ANOTHER, **SHORT)
    put_and_find(client, name)
    make_certificate(tmp_path, "stranger", hosts="DNS:localhost")
    os.replace(tmp_path / "stranger.pem", shown)
    with pytest.raises(AuthenticationError, match="check tls_certificate"):
        client.queue(name).put(Message("t", b"refused"))
    shutil.copy(secure_server.settings().tls_certificate or "", shown)
    put_and_find(client, name)


SECOND = "regionserver-2"


def second_region_server(server: local.LocalServer, launcher: Launcher) -> ProcessPlan:
    """Beside that in the master's process."""
    (port,) = choose_ports([SECOND]).values()
    first = settings_of(server, "master", "hbase-site.xml")
    return launcher.plan(
        SECOND,
        "org.apache.hadoop.hbase.regionserver.HRegionServer",
        "start",
        host="127.0.0.1",
        ports={SECOND: port},
        heap_mb=512,
        options=security_options_of(server, "master"),
        hbase={
            **first,
            "hbase.cluster.distributed": True,
            "hbase.regionserver.port": port,
            "zookeeper.session.timeout": 4_000,  # When it is killed, the master soon knows.
        },
        hdfs=settings_of(server, "master", "core-site.xml"),
    )


def test_regions_that_move_and_servers_that_are_killed_cost_no_message(
    connect: Connect, secure_server: local.LocalServer, fresh: str
) -> None:
    mover = RegionMover(connect().settings, fresh)

    def are_moved_from(before: Mapping[bytes, Address]) -> bool:
        # The master moves nothing until it knows another server, and may be slow to answer.
        with contextlib.suppress(StoreUnavailableError):
            mover.move_from(before)
        now = mover.regions()
        return all(now[region] != before[region] for region in before)

    with (
        added(secure_server, partial(second_region_server, secure_server)),
        Traffic(connect, fresh) as traffic,
    ):
        for _ in range(3):
            traffic.await_passed(10)
            moved = partial(are_moved_from, mover.regions())
            wait_for(moved, "the regions move", pause_s=0.5)
        traffic.await_passed(10)
        secure_server.kill(SECOND)
        traffic.await_passed(20)
        secure_server.restart("master", timeout_s=120)
        traffic.await_passed(20)


def test_expired_tickets_are_renewed_with_a_keytab_and_refused_without(
    connect: Connect, secure_server: local.LocalServer, name: str, fresh: str, tmp_path: Path
) -> None:
    settings = secure_server.settings()
    config = tmp_path / "krb5.conf"
    text = Path(settings.kerberos_config or "").read_text("utf-8")
    config.write_text(text.replace("[libdefaults]", "[libdefaults]\n  ticket_lifetime = 4s"))
    given = {
        **security_of(secure_server), "zookeeper": settings.zookeeper,
        "kerberos_config": str(config), **EACH_TIME_ANOTHER,
    }  # fmt: skip
    program = [
        sys.executable, str(OUTLIVE), json.dumps(given), fresh, name, "9", str(tmp_path / "tickets")
    ]  # fmt: skip
    environ = {k: v for k, v in os.environ.items() if k != "KRB5_CONFIG"}
    environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=60, check=False, env=environ
    )
    assert "Exception ignored" not in done.stderr
    assert "the ticket or the principal has expired: run kinit" in done.stdout, done.stderr
    values = {message.value for message in connect().queue(name).scan()}
    assert b"by tickets" in values
    assert b"too late" not in values
    # Each by a connection of its own; a loaded machine opens few in nine seconds.
    assert len(list(connect().queue(fresh).scan())) > 20


def test_a_program_without_settings_finds_the_server(
    secure_server: local.LocalServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HQUEUE_LOCAL_HOME", str(secure_server.home))
    with hqueue.connect() as client:
        put_and_find(client, name)


def test_a_server_that_asks_for_no_proof_is_refused_unless_that_is_allowed(
    secure_server: local.LocalServer, server: local.LocalServer, queue_name: str
) -> None:
    known = secure_server.settings()
    given: dict[str, Any] = {
        "hbase": "native", "gateways": (), "hbase_authentication": "kerberos",
        "hbase_principal": known.hbase_principal, "kerberos_keytab": known.kerberos_keytab,
        "kerberos_principal": known.kerberos_principal, "kerberos_config": known.kerberos_config,
    }  # fmt: skip
    with (
        hqueue.connect(server.settings(**given)) as client,
        pytest.raises(AuthenticationError, match="hbase_fallback_to_simple"),
    ):
        client.create_queue(queue_name, partitions=1)
    with hqueue.connect(server.settings(**given, hbase_fallback_to_simple=True)) as client:
        client.create_queue(queue_name, partitions=1)
        put_and_find(client, queue_name)
        client.disable_queue(queue_name)
        client.delete_queue(queue_name)
