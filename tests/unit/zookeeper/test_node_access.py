"""Which nodes anyone may change, and closing them, while others go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from hqueue import Settings, SettingsError
from hqueue.cli.exits import ExitCode
from hqueue.connecting import open_node_access
from hqueue.metadata.ports import NEW, Change
from hqueue.zookeeper import NodeAccess, ZooKeeperStore
from tests.support.command_line import run_here
from tests.support.memory.zookeeper import ANYONE, SET_ACL, MemoryZooKeeper

USERS = {"app": "secret", "worker": "secret"}
ROOT = "/hq"
OPEN = ((31, ANYONE),)
OWN = ((31, ("sasl", "app")),)


def proving(user: str) -> dict[str, Any]:
    return {"zookeeper_authentication": "digest", "zookeeper_auth": f"sasl:{user}:secret"}


@pytest.fixture
def server() -> Iterator[MemoryZooKeeper]:
    with MemoryZooKeeper(users=USERS) as server:
        yield server


def settings_of(server: MemoryZooKeeper, **given: Any) -> Settings:
    return Settings(zookeeper=f"127.0.0.1:{server.port}", zookeeper_root=ROOT, **given)


def create(server: MemoryZooKeeper, *paths: str, **given: Any) -> ZooKeeperStore:
    """Make nodes; the last one is ephemeral."""
    store = ZooKeeperStore(settings_of(server, **given))
    store.records.write({path: Change(b"", NEW) for path in paths[:-1]})
    store.ephemerals.put([{paths[-1]: b""}], is_own=lambda _: False, parents=True)
    return store


@pytest.fixture
def nodes(server: MemoryZooKeeper) -> Iterator[list[str]]:
    """Nodes that are open, 500 of them."""
    paths = [f"{ROOT}/{folder}/{number}" for folder in "ab" for number in range(249)]
    store = create(server, *paths[1:], paths[0])
    yield [ROOT, f"{ROOT}/a", f"{ROOT}/b", *paths]
    store.close()


def counted(access: NodeAccess, run: Callable[[NodeAccess], Any]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for node in run(access):
        counts["all"] += 1
        counts["open"] += node.is_open
        counts["hidden"] += node.is_hidden
        counts["changed"] += node.is_changed
    return +counts


def test_open_nodes_are_counted_and_closed_once(server: MemoryZooKeeper, nodes: list[str]) -> None:
    with open_node_access(settings_of(server, **proving("app"))) as access:
        assert counted(access, NodeAccess.survey) == {"all": len(nodes), "open": len(nodes)}
        assert counted(access, NodeAccess.close_all) == {"all": len(nodes), "changed": len(nodes)}
        assert counted(access, NodeAccess.survey) == {"all": len(nodes)}
        assert counted(access, NodeAccess.close_all) == {"all": len(nodes)}
    assert {server.acls()[path] for path in nodes} == {OWN}


def test_all_of_them_get_another_acl(server: MemoryZooKeeper, nodes: list[str]) -> None:
    with open_node_access(settings_of(server, **proving("app"))) as access:
        counted(access, NodeAccess.close_all)
    both = "sasl:app:cdrwa,sasl:worker:cdrwa"
    with open_node_access(settings_of(server, **proving("app"), zookeeper_acl=both)) as access:
        assert counted(access, NodeAccess.close_all) == {"all": len(nodes)}
        done = counted(access, lambda each: each.close_all(every=True))
        assert done == {"all": len(nodes), "changed": len(nodes)}
    with open_node_access(settings_of(server, **proving("worker"))) as access:
        assert counted(access, NodeAccess.survey) == {"all": len(nodes)}


def test_what_was_closed_stays_when_it_is_interrupted(
    server: MemoryZooKeeper, nodes: list[str]
) -> None:
    with open_node_access(settings_of(server, **proving("app"))) as access:
        for number, _ in enumerate(access.close_all()):
            if number == 200:
                break
        closed = sum(server.acls()[path] == OWN for path in nodes)
        assert 200 <= closed < len(nodes)
        assert counted(access, NodeAccess.close_all)["changed"] == len(nodes) - closed


def test_nodes_that_change_or_vanish_meanwhile_stop_nothing(
    server: MemoryZooKeeper, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    operations, times = server._operations, Counter[str]()
    set_acl = operations[SET_ACL]

    def before(fields: Any, session: Any) -> bytes:
        times["calls"] += 1
        if times["calls"] == 1:  # Others change one, and remove one.
            node = server._nodes[nodes[0]]
            server._nodes[nodes[0]] = replace(node, acl_version=node.acl_version + 1)
            server._remove(nodes[-1])
        return set_acl(fields, session)

    monkeypatch.setitem(operations, SET_ACL, before)
    with open_node_access(settings_of(server, **proving("app"))) as access:
        assert counted(access, NodeAccess.close_all)["changed"] == len(nodes) - 1


def test_what_belongs_to_others_is_said_and_left_alone(
    server: MemoryZooKeeper, nodes: list[str]
) -> None:
    store = create(server, f"{ROOT}/theirs/x", f"{ROOT}/theirs/e", **proving("worker"))
    with open_node_access(settings_of(server, **proving("app"))) as access:
        done = counted(access, NodeAccess.close_all)
    assert done == {"all": len(nodes) + 1, "changed": len(nodes), "hidden": 1}
    assert server.acls()[f"{ROOT}/theirs/x"] == ((31, ("sasl", "worker")),)
    store.close()


@pytest.mark.parametrize("given", [{}, {**proving("app"), "zookeeper_acl": "world:anyone:rw"}])
def test_an_acl_that_closes_nothing_is_refused(server: MemoryZooKeeper, given: Any) -> None:
    with (
        open_node_access(settings_of(server, **given)) as access,
        pytest.raises(SettingsError, match="lets anyone change nodes"),
    ):
        access.close_all()


def test_there_may_be_no_nodes_at_all(server: MemoryZooKeeper) -> None:
    with open_node_access(settings_of(server)) as access:
        assert not counted(access, NodeAccess.survey)


@pytest.mark.parametrize(
    ("root", "chroot"), [("/hbase", ""), ("/a", ""), ("/b", "/a"), ("/hbase/hqueue", "")]
)
def test_nodes_of_hbase_are_not_closed(server: MemoryZooKeeper, root: str, chroot: str) -> None:
    parent = {"/a": "/a/hbase", "/b": "/a/b/hbase"}.get(root, "/hbase")
    settings = replace(
        settings_of(server, **proving("app")),
        zookeeper=f"127.0.0.1:{server.port}{chroot}",
        zookeeper_root=root,
        hbase_znode_parent=parent,
    )
    with open_node_access(settings) as access:
        if root == "/hbase/hqueue":  # Beside them.
            access.check_closes()
            return
        with pytest.raises(SettingsError, match="HBase's own nodes lie below zookeeper_root"):
            access.close_all()


def test_the_root_of_all_nodes_is_not_hqueues(server: MemoryZooKeeper) -> None:
    create(server, "/others", "/others/e").close()
    before = server.acls()
    environ = {
        "HQUEUE_ZOOKEEPER": f"127.0.0.1:{server.port}",
        "HQUEUE_ZOOKEEPER_ROOT": "/",
        "HQUEUE_ZOOKEEPER_AUTHENTICATION": "digest",
        "HQUEUE_ZOOKEEPER_AUTH": "sasl:app:secret",
    }
    for arguments in ([], ["--apply", "--yes"], ["--apply", "--all", "--yes"]):
        code, _, err = run_here(["secure-nodes", *arguments], b"", environ)
        assert code == ExitCode.USAGE
        assert "zookeeper_root must be a ZooKeeper path, such as /hqueue" in err
    assert server.acls() == before
