"""Access rules and the owners of names, on real servers: a change while hubs run, a take-over by
another hub, and strangers.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hqueue import Message, NotAllowedError, local
from hqueue.errors import InvalidInputError
from tests.support.backends import NativeBackend
from tests.support.certificates import Certificates
from tests.support.raw import RawHBase
from tests.support.secured_hubs import RULES, RuledHubs
from tests.support.waiting import wait_for


@pytest.fixture(params=["zookeeper", "hbase"])
def hubs(
    server: local.LocalServer, certificates: Certificates, request: pytest.FixtureRequest
) -> Iterator[RuledHubs]:
    name = f"access-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        made = RuledHubs(
            stack,
            certificates,
            NativeBackend(server, RawHBase(server.gateways[0])),
            name,
            metadata_store=request.param,
            metadata_table=name + "-topics",
            zookeeper_root=f"/{name}",  # The rules are the root's.
        )
        for _ in range(2):
            made.hub(**RULES, api_port=0, balance_ms=3_600_000)
        yield made


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except (NotAllowedError, InvalidInputError):
        return True
    return False


def test_rules_change_while_hubs_run_and_owners_stay_when_one_ends(hubs: RuledHubs) -> None:
    loader, reader, stranger = (
        hubs.connect(name, publisher=name) for name in ("loader", "reader", "stranger")
    )

    def publish(by: Any) -> Callable[[], object]:
        return lambda: by.topic("t").publish_idempotent([b"v"], sequence_number=7)

    def put(by: Any) -> Callable[[], object]:
        return lambda: by.queue().put([Message("t", b"put")])

    got: list[bytes] = []
    subscribe = lambda by: lambda: by.topic("t").subscribe("reader", print).close()  # noqa: E731
    for name in (loader, reader, stranger):
        assert all(refused(call(name)) for call in (publish, put, subscribe))
    hubs.change("grant", "loader", "create,publish", queue=hubs.name)
    hubs.change("grant", "re*", "subscribe", queue=hubs.name, topic="t")
    wait_for(lambda: not refused(publish(loader)), "the hubs follow the change")
    wait_for(lambda: not refused(put(loader)), "the API, too")
    with reader.topic("t").subscribe("reader", lambda ms: got.extend(m.value for m in ms)):
        loader.topic("t").publish(b"new")
        wait_for(lambda: got, "it is delivered")
    hubs.change("grant", "stranger", "publish,subscribe", queue=hubs.name)
    wait_for(lambda: not refused(lambda: stranger.topic("t").publish(b"v")), "it may, too")
    impostor = hubs.connect("stranger", publisher="loader")
    (owner,) = (hub for hub in hubs.hubs if "t" in hub.owns(hubs.name))
    for _ in range(2):
        assert refused(publish(impostor)), "these are another's numbers"
        assert refused(subscribe(stranger)), "this is another's subscription"
        assert refused(lambda: stranger.topic("t").unsubscribe("reader"))
        owner.terminate()  # The other hub takes the topic over.
    assert loader.topic("t").last_sequence_number() == 7
    publish(loader)()
    subscribe(reader)()
    hubs.change("revoke", "re*", "subscribe", queue=hubs.name, topic="t")
    wait_for(lambda: refused(subscribe(reader)), "the right is gone")
    hubs.connect("ops").topic("t").unsubscribe("reader")
