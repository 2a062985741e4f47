"""Rights in HBase hold for principals that reach it directly, and the docs say which each needs."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterator

import pytest

import hqueue
import hqueue.aio
from hqueue import Message, MessageID, Outcome, RequestRefusedError, local
from hqueue.metadata.managers import (
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
)
from tests.support.hbase_rights import HBaseRights
from tests.support.waiting import wait_for

USER = "app"
"""A principal that has no rights but those that it is granted."""

MESSAGE = Message("t", b"v")
ALL = {"open", "scan", "put", "keyed put", "alter", "truncate", "disable", "delete"}
"""What is tried."""
WRITING = {"put", "keyed put"}
ADMINISTERING = {"alter", "truncate", "disable", "delete"}
"""What takes C."""


@pytest.fixture(scope="module")
def rights(secure_server: local.LocalServer) -> Iterator[HBaseRights]:
    with contextlib.closing(HBaseRights(secure_server.settings())) as opened:
        yield opened


@pytest.fixture
def name(secure_server: local.LocalServer) -> Iterator[str]:
    name = f"rights-{uuid.uuid4().hex[:8]}"
    with hqueue.connect(secure_server.settings()) as client:
        client.create_queue(name, partitions=1)
        yield name
        with contextlib.suppress(hqueue.QueueNotFoundError):
            client.delete_queue(name, force=True)


@pytest.fixture
def client(secure_server: local.LocalServer) -> Iterator[hqueue.Client]:
    """A client of the principal without rights."""
    own = secure_server.settings()
    assert own.kerberos_principal is not None
    realm = own.kerberos_principal.partition("@")[2]
    given = {"kerberos_principal": f"{USER}@{realm}", "zookeeper_root": "/rights"}
    given["metadata_table"] = "rights_metadata"  # Other tests' table is not theirs to look into.
    with hqueue.connect(secure_server.settings(**given)) as client:
        yield client


def may(call: Callable[[], object]) -> bool:
    """Whether a principal may do something."""
    try:
        call()
    except RequestRefusedError:
        return False
    return True


def allowed(client: hqueue.Client, name: str) -> set[str]:
    """What a principal may do with a queue."""
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: client.queue(name),
        "scan": lambda: list(client.queue(name).scan()),
        "put": lambda: client.queue(name).put(MESSAGE),
        "keyed put": lambda: client.queue(name).put(MESSAGE, partition=0, idempotency_key=b"k"),
        "alter": lambda: client.alter_queue(name, ttl=3_600),
        "truncate": lambda: client.truncate_queue(name),
        "disable": lambda: client.disable_queue(name),
        "delete": lambda: client.delete_queue(name, force=True),
    }
    assert calls.keys() == ALL
    done, outcomes = set(), set()
    for what, call in calls.items():
        try:
            call()
        except RequestRefusedError as exc:
            outcomes.add(exc.outcome)
        else:
            done.add(what)
    assert outcomes <= {Outcome.NOT_APPLIED}
    return done


@pytest.mark.parametrize(
    ("granted", "refused"),
    [
        ("", ALL),
        ("R", WRITING | ADMINISTERING),
        ("RW", ADMINISTERING),
        ("W", ALL),
        ("RC", WRITING),
        ("C", {"scan", *WRITING}),
        ("RWC", set()),
    ],
)
def test_a_principal_may_do_what_it_was_granted(
    client: hqueue.Client, rights: HBaseRights, name: str, granted: str, refused: set[str]
) -> None:
    if granted:
        rights.grant(USER, granted, name)
    # A server hears of rights a moment after the master.
    if "C" in granted:
        wait_for(lambda: name in {each.name for each in client.list_queues()}, "the grant counts")
    elif "R" in granted:
        wait_for(lambda: may(lambda: client.queue(name)), "the grant counts")
    if "W" in granted and "R" in granted:
        wait_for(lambda: may(lambda: client.queue(name).put(MESSAGE)), "that of writing, too")
    assert ALL - allowed(client, name) == refused


def test_a_right_that_is_revoked_is_gone(
    client: hqueue.Client, rights: HBaseRights, name: str
) -> None:
    rights.grant(USER, "RWC", name)
    wait_for(lambda: name in {each.name for each in client.list_queues()}, "the grant counts")
    queue = client.queue(name)

    wait_for(lambda: may(lambda: queue.put(MESSAGE)), "the server has heard of it")
    rights.revoke(USER, name)
    wait_for(lambda: not may(lambda: queue.put(MESSAGE)), "the open queue is of no use any more")


def test_with_rights_to_read_and_write_both_faces_work_and_the_record_outlives_a_truncation(
    secure_server: local.LocalServer, client: hqueue.Client, rights: HBaseRights, name: str
) -> None:
    with hqueue.connect(secure_server.settings()) as owner:
        owner.truncate_queue(name)
    rights.grant(USER, "RW", name)
    wait_for(lambda: may(lambda: client.queue(name).put(MESSAGE)), "the grant counts")

    async def run() -> list[bytes]:
        queue = await hqueue.aio.Client(client).queue(name)
        await queue.put(Message("t", b"looped"))
        async with queue.scan() as messages:
            return [message.value async for message in messages]

    assert b"looped" in asyncio.run(run())
    with pytest.raises(RequestRefusedError):
        client.queue(name).describe()


def test_a_queue_is_deleted_by_those_that_may_delete_its_topics_records_in_hbase(
    secure_server: local.LocalServer, rights: HBaseRights, name: str
) -> None:
    table = f"{name}-topics"
    own = secure_server.settings()
    assert own.kerberos_principal is not None
    user = f"{USER}@{own.kerberos_principal.partition('@')[2]}"
    with (
        hqueue.connect(secure_server.settings(metadata_table=table)) as owner,
        hqueue.connect(
            secure_server.settings(
                kerberos_principal=user, metadata_table=table, zookeeper_root="/rights"
            )
        ) as client,
    ):
        with owner.topic_metadata(name, store="hbase") as metadata:
            data = SubscriptionData(SubscriptionPreferences(), SubscriptionState(MessageID(5)))
            metadata.subscriptions.create_subscription_data("t", "s", data).result(60)
        rights.grant(USER, "RWC", name)
        wait_for(lambda: name in {each.name for each in client.list_queues()}, "the grant counts")
        for granted in ("", "RW"):
            if granted:
                rights.grant(USER, granted, table)
            with pytest.raises(RequestRefusedError):
                client.delete_queue(name, force=True)
            assert not owner.describe_queue(name).enabled, "it is there, and disabled"
        rights.grant(USER, "RWC", table)

        def is_deleted() -> bool:  # A server hears of rights a moment after the master.
            with contextlib.suppress(RequestRefusedError):
                client.delete_queue(name, force=True)
            return name not in {each.name for each in owner.list_queues()}

        wait_for(is_deleted, "the grant counts")
