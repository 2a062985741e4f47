"""Sessions that prove who they are: before anything says that they are connected, each time."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.protocol.states import KeeperState

from hqueue import RequestRefusedError, Settings, StoreUnavailableError
from hqueue.errors import AuthenticationError
from hqueue.metadata.ports import NEW, Change, SessionState
from hqueue.zookeeper import ZooKeeperNodes, ZooKeeperStore, members
from tests.support.awaited import LoopedSteps
from tests.support.looped import LoopThread
from tests.support.memory.zookeeper import ANYONE, MemoryZooKeeper
from tests.support.proxy import Proxy
from tests.support.waiting import wait_for
from tests.support.zookeeper_faults import cut, zookeeper_proxy

SECRET = "hush-hush"
APP: dict[str, Any] = {
    "zookeeper_authentication": "digest", "zookeeper_auth": f"sasl:app:{SECRET}",
}  # fmt: skip
SESSION_MS = 4_000
QUICK_S = 3.0

Open = Callable[..., ZooKeeperStore]


@pytest.fixture
def server() -> Iterator[MemoryZooKeeper]:
    with MemoryZooKeeper(users={"app": SECRET, "worker": "other"}, demands_sasl=True) as server:
        yield server


@pytest.fixture
def open_store(server: MemoryZooKeeper) -> Iterator[Open]:
    with contextlib.ExitStack() as stack:

        def one(port: int | None = None, **settings: Any) -> ZooKeeperStore:
            made = Settings(
                zookeeper=f"127.0.0.1:{port or server.port}",
                zookeeper_session_timeout_ms=SESSION_MS,
                **settings,
            )
            return stack.enter_context(contextlib.closing(ZooKeeperStore(made)))

        yield one


@pytest.fixture
def proxy(server: MemoryZooKeeper) -> Iterator[Proxy]:
    with zookeeper_proxy(f"127.0.0.1:{server.port}") as proxy:
        yield proxy


@pytest.fixture(params=["threads", "asyncio"])
def read(request: pytest.FixtureRequest, server: MemoryZooKeeper) -> Iterator[Callable[..., Any]]:
    """Reads a node as HBase's registry does, by either face."""
    with contextlib.closing(LoopThread()) as thread:

        def one(path: str, **settings: Any) -> Any:
            given = {"request_timeout_ms": 2_000, **settings}
            nodes = ZooKeeperNodes(Settings(**{"zookeeper": f"127.0.0.1:{server.port}", **given}))
            reader: Any = nodes if request.param == "threads" else LoopedSteps(nodes, thread)
            return reader.read(path)

        yield one


def states_of(store: ZooKeeperStore) -> list[SessionState]:
    seen: list[SessionState] = []
    store.on_state(seen.append)
    return seen


def write(store: ZooKeeperStore, path: str = "/a") -> None:
    store.records.write({path: Change(b"v's value", NEW)})


def test_nothing_says_connected_before_the_server_knows_who_it_is(
    server: MemoryZooKeeper, open_store: Open, proxy: Proxy
) -> None:
    store = open_store(proxy.port, **APP)
    seen = states_of(store)
    for _ in range(3):
        server.sasl_goes_on.clear()
        server.tokens = 0
        proxy.break_connections()
        done = threading.Thread(target=store.records.read, args=(["/a"],))
        done.start()
        wait_for(lambda: server.tokens, "the server has granted a session")
        assert store.state is not SessionState.CONNECTED
        assert seen[-1] is not SessionState.CONNECTED
        server.sasl_goes_on.set()
        done.join(10)
        assert store.state is SessionState.CONNECTED
    connected, cut_off = SessionState.CONNECTED, SessionState.SUSPENDED
    assert seen == [cut_off, connected] * 3, "the session stays the same"


def test_a_session_that_was_cut_proves_itself_again_and_keeps_what_it_owns(
    server: MemoryZooKeeper, open_store: Open, proxy: Proxy
) -> None:
    store = open_store(proxy.port, **APP)
    store.ephemerals.put([{"/e": b"1"}], is_own=lambda _: False)
    before = store.session_id
    for _ in range(3):
        with cut(proxy):
            wait_for(lambda: store.state is SessionState.SUSPENDED, "it is cut")
        assert store.records.read(["/e"])["/e"].value == b"1"
        assert store.session_id == before


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({**APP, "zookeeper_auth": "sasl:app:wrong"}, "did not accept the user and the password"),
        ({**APP, "zookeeper_auth": "sasl:nobody:x"}, "did not accept the user and the password"),
        ({}, "set zookeeper_authentication"),
        ({"zookeeper_auth": "nonsense:x"}, "did not accept a credential: check zookeeper_auth"),
    ],
)
def test_a_refusal_is_final_and_says_what_to_look_at(
    open_store: Open, read: Callable[..., Any], given: dict[str, Any], text: str
) -> None:
    store = open_store(**given)
    seen = states_of(store)
    for ask in (lambda: store.records.read(["/a"]), lambda: read("/a", **given)) * 2:
        begun_s = time.monotonic()
        with pytest.raises(AuthenticationError, match=text) as caught:
            ask()
        assert time.monotonic() - begun_s < QUICK_S
        assert SECRET not in str(caught.value)
    if given:
        assert SessionState.CONNECTED not in seen


def test_a_server_without_sasl_is_refused(read: Callable[..., Any], open_store: Open) -> None:
    with MemoryZooKeeper() as other:
        store = open_store(other.port, **APP)
        with pytest.raises(AuthenticationError, match="did not answer to SASL"):
            store.records.read(["/a"])
        with pytest.raises(AuthenticationError, match="did not answer to SASL"):
            read("/a", **APP, zookeeper=f"127.0.0.1:{other.port}")


def test_a_refused_client_ends_its_threads(open_store: Open) -> None:
    before = set(threading.enumerate())
    store = open_store(zookeeper_authentication="digest", zookeeper_auth="sasl:app:wrong")
    with pytest.raises(AuthenticationError):
        store.records.read(["/a"])
    ours = "hqueue-session"
    wait_for(
        lambda: all(thread.name == ours for thread in set(threading.enumerate()) - before) or None,
        "kazoo's threads have ended",
    )


def test_a_password_that_changes_ends_the_session_which_comes_back_when_it_fits(
    server: MemoryZooKeeper,
    open_store: Open,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(members, "REFUSED_PAUSE_MS", 100.0)
    secrets = tmp_path / "secrets"
    secrets.write_text(f"sasl:app:{SECRET}\n")
    store = open_store(
        proxy.port, zookeeper_authentication="digest", zookeeper_auth_file=str(secrets)
    )
    write(store)
    seen = states_of(store)
    server.users = {"app": "changed"}
    proxy.break_connections()
    wait_for(lambda: SessionState.LOST in seen, "it is let in no more")
    with pytest.raises(AuthenticationError, match="did not accept the user and the password"):
        store.records.read(["/a"])
    secrets.write_text("\n  sasl:app:changed  \n\n")
    wait_for(lambda: store.state is SessionState.CONNECTED, "it is let in again, by itself")
    assert store.records.read(["/a"])["/a"].value == b"v's value"


@pytest.mark.parametrize("content", [None, b"", b"hush-hush", b"digest:a:b", b"\xff", b"sasl:app"])
def test_a_file_of_credentials_that_is_none_is_refused_and_not_shown(
    open_store: Open, read: Callable[..., Any], tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "secrets"
    if content is not None:
        path.write_bytes(content)
    given = {"zookeeper_authentication": "digest", "zookeeper_auth_file": str(path)}
    store = open_store(**given)
    for ask in (lambda: store.records.read(["/a"]), lambda: read("/a", **given)):
        with pytest.raises(
            AuthenticationError, match="zookeeper_auth_file can't be used"
        ) as caught:
            ask()
        assert caught.value.facts["path"] == str(path)
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "acl"),
    [
        ({}, {(31, ("sasl", "app"))}),
        ({"zookeeper_acl": "sasl:app:cdrwa,sasl:worker:r"},
         {(31, ("sasl", "app")), (1, ("sasl", "worker"))}),
        ({"zookeeper_acl": "world:anyone:cdrwa"}, {(31, ANYONE)}),
    ],
)  # fmt: skip
def test_nodes_are_the_principals_by_default(
    server: MemoryZooKeeper, open_store: Open, given: dict[str, Any], acl: set[Any]
) -> None:
    store = open_store(**APP, **given)
    store.records.write({"/a/b": Change(b"", NEW)})
    store.ephemerals.put([{"/a/e": b""}], is_own=lambda _: False)
    assert {path: set(found) for path, found in server.acls().items()} == {
        "/a": acl, "/a/b": acl, "/a/e": acl
    }  # fmt: skip


def test_credentials_make_nodes_ones_own_too_and_nothing_makes_them_open(
    server: MemoryZooKeeper, open_store: Open
) -> None:
    with MemoryZooKeeper() as other:
        store = open_store(other.port, zookeeper_auth="digest:owner:secret")
        store.records.write({"/a": Change(b"", NEW)})
        assert other.acls() == {"/a": ((31, ("digest", "owner:secret")),)}
        stranger = open_store(other.port)
        with pytest.raises(RequestRefusedError, match="ACL of the node does not let this session"):
            write(stranger, "/a/b")
        stranger.records.write({"/b": Change(b"", NEW)})
        assert other.acls()["/b"] == ((31, ANYONE),)


def test_no_secret_is_logged(
    open_store: Open, caplog: pytest.LogCaptureFixture, proxy: Proxy
) -> None:
    caplog.set_level(1)
    logging.getLogger("hqueue").setLevel(1)
    auth = f"{APP['zookeeper_auth']},digest:app:{SECRET}"
    store = open_store(proxy.port, zookeeper_authentication="digest", zookeeper_auth=auth)
    write(store)
    proxy.break_connections()
    store.records.read(["/a"])
    password = next(iter(store.session.members)).client._session_passwd
    assert "Connecting to" in caplog.text
    for secret in (SECRET, str(password), password.hex(), "v's value"):
        assert secret not in caplog.text


def test_what_is_no_answer_ends_no_thread_of_kazoo(
    server: MemoryZooKeeper, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(**APP, operation_timeout_ms=500)
    answers = iter([b"nonsense", b"\0\0\0\7", b"\x7f" * 99, None])
    answer = MemoryZooKeeper._sasl

    def strange(self: MemoryZooKeeper, fields: Any, connection: Any) -> bytes:
        said = next(answers, None)
        return answer(self, fields, connection) if said is None else said

    monkeypatch.setattr(MemoryZooKeeper, "_sasl", strange)
    with contextlib.suppress(StoreUnavailableError):
        store.records.read(["/a"])
    wait_for(lambda: store.state is SessionState.CONNECTED, "it came through")
    client = next(iter(store.session.members)).client
    assert client.client_state is KeeperState.CONNECTED
