"""A topic's ACL: who may do what, from when on, and who may change it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import hqueue
from hqueue import InvalidInputError, Outcome, SettingsError, StoreUnavailableError, TopicACL
from hqueue.errors import NotAllowedError
from hqueue_workers.hub.authorizer import AllowAll, ByACL, Operation
from hqueue_workers.hub.settings import HubSettings
from tests.support.backends import MemoryBackend
from tests.support.hubs import HubThread
from tests.support.stopping import made_later, stopped_at
from tests.support.waiting import wait_for

QUEUE = "q"
WAIT_S = 60.0
ACLS = {"authorizer": "acl", "creators": "maker,admin", "administrators": "admin"}


class Scene:
    """Two hubs of one queue, that go by ACLs, and clients that give names."""

    def __init__(self, stack: contextlib.ExitStack, store: str) -> None:
        self._stack = stack
        cluster = MemoryBackend().apart(10_000)
        with cluster.connect() as client:
            client.create_queue(QUEUE, partitions=2)
        self.hubs = [
            stack.enter_context(
                HubThread(
                    stack.enter_context(cluster.connect(metadata_store=store)),
                    QUEUE,
                    balance_ms=3_600_000,
                    **ACLS,
                )
            )
            for _ in range(2)
        ]

    def client(self, name: str, **settings: Any) -> hqueue.HubClient:
        hubs = [hub.address for hub in self.hubs]
        return self._stack.enter_context(
            hqueue.connect_hubs(hubs, queue=QUEUE, publisher=name, **settings)
        )

    def persistence(self, number: int) -> Any:
        """Where a hub keeps ACLs."""
        return self.hubs[number].hosted(QUEUE).metadata.persistence

    def owner(self) -> int:
        (number,) = [number for number in range(2) if "t" in self.hubs[number].owns(QUEUE)]
        return number


@pytest.fixture(params=["zookeeper", "hbase"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        yield Scene(stack, request.param)


def test_acls_stand_for_names_and_beginnings_of_names() -> None:
    acl = TopicACL(publish=["a", "b-*", "a"], subscribe=[], manage="*"[:1].split())
    assert acl.publish == ("a", "b-*")
    by = ByACL(["maker"], ["root"])

    def may(caller: str, operation: Operation) -> bool:
        assert AllowAll().allows(caller, operation, QUEUE, "t", acl)
        return by.allows(caller, operation, QUEUE, "t", acl)

    assert [may(name, Operation.PUBLISH) for name in ("a", "ab", "b-", "b-1", "b", "root")] == [
        *[True, False, True, True, False, True]
    ]
    assert [may(name, Operation.SUBSCRIBE) for name in ("a", "root")] == [False, True]
    assert [may(name, Operation.CREATE) for name in ("a", "maker", "root")] == [False, True, True]
    assert may("anybody", Operation.MOVE)


@pytest.mark.parametrize("names", ["a", b"a", 7, [7], ["a b"], [""], ["a**"], ["*a"], ["x"] * 257])
def test_what_is_no_rule_is_refused(names: Any) -> None:
    with pytest.raises(InvalidInputError):
        TopicACL(publish=names)


@pytest.mark.parametrize(
    "wrong", [{"authorizer": "some"}, {"authorizer": "acl", "creators": "a b"}]
)
def test_settings_that_say_nothing_of_who_may_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        HubSettings.load(wrong, {})


def test_who_is_not_named_may_not(scene: Scene) -> None:
    maker, other = scene.client("maker"), scene.client("other")
    with pytest.raises(NotAllowedError):
        other.topic("t").publish(b"v")
    with pytest.raises(InvalidInputError, match="no such topic"):
        maker.topic("t").acl()
    assert maker.topic("t").set_acl(publish=["pub-*"], manage=["maker"]) == TopicACL(
        ["pub-*"], manage=["maker"]
    )
    assert scene.client("pub-1").topic("t").publish(b"v")
    refused: list[Callable[[], Any]] = [
        lambda: maker.topic("t").publish(b"v"),
        lambda: maker.topic("t").last_sequence_number(),
        lambda: other.topic("t").publish_idempotent([b"v"], sequence_number=1),
        lambda: other.topic("t").acl(),
        lambda: other.topic("t").set_acl(manage=["other"]),
        lambda: other.topic("t").move(scene.hubs[0].address),
        lambda: other.topic("t").delete(),
        lambda: other.topic("another").set_acl(publish=["other"]),
    ]
    for call in refused:
        with pytest.raises(NotAllowedError):
            call()
    maker.topic("t").set_acl(manage=[])
    with pytest.raises(NotAllowedError):
        maker.topic("t").acl()
    admin = scene.client("admin")
    assert admin.topic("t").set_acl(manage=["maker"]).publish == ("pub-*",)
    assert maker.topic("t").delete()
    assert maker.topic("t").set_acl(subscribe=["s"]) == TopicACL(subscribe=["s"]), (
        "it is another topic"
    )


def test_who_may_not_subscribe_any_more_gets_nothing_more(scene: Scene) -> None:
    maker = scene.client("maker")
    maker.topic("t").publish(b"0")
    came: list[bytes] = []
    kept = maker.topic("t").subscribe(
        "kept", lambda messages: came.extend(m.value for m in messages)
    )
    ended = maker.topic("t").subscribe("ended", lambda _: None)
    maker.topic("t").set_acl(subscribe=["kept"])
    with pytest.raises(NotAllowedError):
        ended.wait(WAIT_S)
    for call in (
        lambda: maker.topic("t").subscribe("ended", lambda _: None),
        lambda: maker.topic("t").unsubscribe("ended"),
    ):
        with pytest.raises(NotAllowedError):
            call()
    maker.topic("t").publish(b"1")
    wait_for(lambda: came == [b"1"], "the other goes on")
    assert not kept.ended
    maker.topic("t").set_acl(subscribe=["*"])
    maker.topic("t").subscribe("ended", lambda _: None, mode=hqueue.SubscribeMode.ATTACH)


def test_an_acl_goes_with_the_topic_to_every_hub(scene: Scene) -> None:
    maker = scene.client("maker")
    maker.topic("t").publish(b"v")
    maker.topic("t").set_acl(publish=["pub"])
    for hub in (*scene.hubs, *scene.hubs):
        maker.topic("t").move(hub.address)
        with pytest.raises(NotAllowedError):
            maker.topic("t").publish(b"v")
        assert scene.client("pub").topic("t").publish(b"v")
    scene.hubs[scene.owner()].terminate()
    with pytest.raises(NotAllowedError):
        maker.topic("t").publish(b"v")


def test_a_hub_that_lost_a_topic_does_not_change_its_acl(scene: Scene) -> None:
    maker = scene.client("maker")
    maker.topic("t").set_acl(publish=["first"])
    maker.topic("t").move(scene.hubs[0].address)
    hosted = scene.hubs[0].hosted(QUEUE)
    persistence = scene.persistence(0)
    with stopped_at(persistence, "write_topic_persistence_info") as (reached, go_on):
        late = hosted.managing.change_acl("maker", "t", {"publish": ("late",)}, redirected=False)
        assert reached.wait(WAIT_S)
        hosted.topics.abandon("t").result(WAIT_S)
        other = scene.hubs[1].hosted(QUEUE).managing
        changed = other.change_acl("maker", "t", {"manage": ("maker",)}, redirected=True)
        assert changed.result(WAIT_S) == TopicACL(["first"], manage=["maker"])
        go_on.set()
        error = late.exception(WAIT_S)
    assert isinstance(error, StoreUnavailableError)
    assert error.outcome is Outcome.NOT_APPLIED
    assert maker.topic("t").acl() == TopicACL(["first"], manage=["maker"])
    assert scene.owner() == 1


@pytest.mark.parametrize("stored", [False, True])
def test_what_is_kept_holds_where_it_is_not_known_what_became_of_a_change(
    scene: Scene, *, stored: bool
) -> None:
    maker = scene.client("maker")
    maker.topic("t").publish(b"v")
    persistence = scene.persistence(scene.owner())
    write = persistence.write_topic_persistence_info

    def unanswered(*given: Any) -> Future[Any]:
        if stored:
            write(*given).result(WAIT_S)
        failed: Future[Any] = Future()
        failed.set_exception(StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN))
        return failed

    managing = scene.hubs[scene.owner()].hosted(QUEUE).managing
    persistence.write_topic_persistence_info = unanswered
    try:
        changed = managing.change_acl("maker", "t", {"publish": ()}, redirected=False)
        error = changed.exception(WAIT_S)
    finally:
        del persistence.write_topic_persistence_info
    assert isinstance(error, StoreUnavailableError)
    assert error.outcome is Outcome.UNKNOWN
    assert maker.topic("t").acl() == (TopicACL(publish=[]) if stored else TopicACL())
    with pytest.raises(NotAllowedError) if stored else contextlib.nullcontext():
        maker.topic("t").publish(b"v")


def test_a_subscriber_that_is_just_attaching_is_refused_by_a_rule_that_came_meanwhile(
    scene: Scene,
) -> None:
    maker = scene.client("maker")
    maker.topic("t").publish(b"v")
    hosted = scene.hubs[scene.owner()].hosted(QUEUE)
    with made_later(hosted.metadata.subscriptions, "create_subscription_data") as (reached, go_on):
        ended: Future[Any] = Future()

        def subscribe() -> None:
            try:
                ended.set_result(maker.topic("t").subscribe("s", lambda _: None))
            except hqueue.HQueueError as exc:
                ended.set_exception(exc)

        threading.Thread(target=subscribe, daemon=True).start()
        assert reached.wait(WAIT_S)
        scene.client("maker").topic("t").set_acl(subscribe=[])
        go_on.set()
        assert isinstance(ended.exception(WAIT_S), NotAllowedError)
    assert hosted.subscriptions.sessions.attached == 0
