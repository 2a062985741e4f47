"""Who may change the access rules: ZooKeeper sees to that, by the ACL of their node."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from hqueue import RequestRefusedError, Settings
from hqueue.metadata.access_rules import AccessRule, AccessRules, Operation
from hqueue.metadata.ports import ANY
from hqueue.zookeeper import ZooKeeperCoordination
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.waiting import wait_for

ONE, TWO = (AccessRule(name, frozenset({Operation.PUBLISH})) for name in ("one", "two"))


def test_the_node_keeps_the_acl_that_it_was_created_with() -> None:
    with (
        MemoryZooKeeper(users={"ops": "secret", "hub": "secret"}) as server,
        contextlib.ExitStack() as stack,
    ):

        def session(user: str, **given: Any) -> ZooKeeperCoordination:
            made = ZooKeeperCoordination(
                Settings(
                    zookeeper=f"127.0.0.1:{server.port}",
                    zookeeper_authentication="digest",
                    zookeeper_auth=f"sasl:{user}:secret",
                    operation_timeout_ms=5_000,
                    **given,
                )
            )
            stack.callback(made.close)
            return made

        ops = session("ops", zookeeper_acl="sasl:ops:cdrwa,sasl:hub:r")
        ops.access_rules.change(lambda rules: rules.granted(ONE))
        hub, seen = session("hub"), []  # type: ignore[var-annotated]
        assert hub.access_rules.read() == AccessRules([ONE])
        hub.access_rules.watch(seen.append)
        for refused in (
            lambda: hub.access_rules.change(lambda rules: rules.granted(TWO)),
            lambda: hub.store.records.delete({hub.paths.access_rules: ANY}),
        ):
            with pytest.raises(RequestRefusedError):
                refused()
        later = session("ops")  # Its own ACL would let nobody else read.
        later.access_rules.change(lambda rules: rules.granted(TWO))
        wait_for(lambda: seen and seen[-1] == AccessRules([ONE, TWO]), "the hub sees the change")
