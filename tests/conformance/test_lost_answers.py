"""A change whose answer was lost is looked up: it was done, or it was not, or nobody can know."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hqueue import Outcome, Settings, StoreUnavailableError
from hqueue.metadata.outcomes import PartlyDoneError
from hqueue.metadata.ports import ANY, NEW, Change, GuardedWrite, Version
from hqueue.zookeeper import ZooKeeperStore
from tests.support.proxy import Fate, Proxy
from tests.support.waiting import wait_for
from tests.support.zookeeper_faults import zookeeper_proxy

V0, V1 = Version(0), Version(1)
UNKNOWN = "unknown"
OURS, OTHERS = b"ours", b"others"

Step = Callable[["Other"], Any]
Case = tuple[Any, ...]
"""What the test needs of it; the answer stands last."""


class Other:
    """Another session, without faults."""

    def __init__(self, store: ZooKeeperStore, key: str) -> None:
        self.store = store
        self.key = key

    def create(self) -> None:
        assert self.write(NEW) is not None

    def write(self, version: Version = ANY) -> Version | None:
        return self.store.records.write({self.key: Change(OTHERS, version)})[self.key]

    def delete(self) -> None:
        assert self.store.records.remove({self.key: ANY})[self.key]

    def beside(self) -> None:
        self.store.records.write({f"{self.key}-beside": Change(OTHERS, NEW)})


class Scene:
    """Where a case happens: a session behind a proxy, and another one."""

    def __init__(self, zookeeper: str) -> None:
        root = f"/hqueue-{uuid.uuid4().hex[:12]}"
        self._end = contextlib.ExitStack()
        self.proxy = self._end.enter_context(zookeeper_proxy(zookeeper))
        self.store = self._open(f"127.0.0.1:{self.proxy.port}", root)
        self.other = Other(self._open(zookeeper, root), f"{root}/a/b")
        self.key = self.other.key
        self.other.store.records.create({root: b""})  # Other cases change what is above it.

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *error: object) -> None:
        self._end.close()

    def _open(self, zookeeper: str, root: str) -> ZooKeeperStore:
        store = ZooKeeperStore(
            Settings(zookeeper=zookeeper, zookeeper_root=root, zookeeper_session_timeout_ms=20_000)
        )
        self._end.callback(store.close)
        return store

    def ask(self, before: Step, operation: Callable[[], Any], fate: Fate, meanwhile: Step) -> Any:
        """What comes of an operation whose first request meets a fate."""
        before(self.other)
        self.store.records.read([self.key])  # From now on it knows what came before.
        return ask(self.proxy, operation, fate, lambda: meanwhile(self.other))


def of_each(cases: Mapping[str, Case], zookeeper: str, run: Callable[[Scene, Case], Any]) -> None:
    """Each case has the answer that stands last in it; all at once, for each waits for a
    connection.
    """

    def found(case: Case) -> Any:
        with Scene(zookeeper) as scene:
            return run(scene, case)

    with ThreadPoolExecutor(16) as pool:
        answers = dict(zip(cases, pool.map(found, cases.values()), strict=True))
    assert answers == {name: case[-1] for name, case in cases.items()}


def ask(
    proxy: Proxy, operation: Callable[[], Any], fate: Fate, meanwhile: Callable[[], object]
) -> Any:
    """What comes of an operation whose first request meets a fate, when this is done before the
    connection is there again.
    """
    fates = iter([fate])
    lost = []

    def once(method: str) -> Fate:
        lost.append(method)
        return next(fates, Fate.LOSE_REQUEST)

    with ThreadPoolExecutor(1) as pool:
        proxy.fate = once
        try:
            asked = pool.submit(operation)
            wait_for(lambda: len(lost) > 1 or asked.done(), "it was lost, and nothing more comes")
            meanwhile()
        finally:
            proxy.fate = lambda method: Fate.PASS
        try:
            return asked.result()
        except StoreUnavailableError as exc:
            return UNKNOWN if exc.outcome is Outcome.UNKNOWN else exc


def nothing(other: Other) -> None:
    pass


def again(other: Other) -> None:
    other.delete()
    other.create()


def created(other: Other) -> None:
    other.create()


def created_beside(other: Other) -> None:
    other.create()
    other.beside()


def registered(other: Other) -> None:
    other.store.ephemerals.claim({f"{other.key}/who": OTHERS})


def changed(other: Other) -> None:
    other.create()
    other.write()


DONE, LOST = Fate.LOSE_ANSWER, Fate.LOSE_REQUEST

CASES: dict[str, Case] = {
    "changed": (created, V0, DONE, nothing, V1),
    "not changed, and sent again": (created, V0, LOST, nothing, V1),
    "another changed it first": (created, V0, LOST, lambda other: other.write(V0), None),
    "another version from the beginning": (changed, V0, LOST, nothing, None),
    "changed, and by another since": (created, V0, DONE, lambda other: other.write(V1), UNKNOWN),
    "changed by others alone": (
        created, V0, LOST, lambda other: (other.write(), other.write()), UNKNOWN),
    "changed, and deleted": (created, V0, DONE, lambda other: other.delete(), UNKNOWN),
    "deleted": (created, V0, LOST, lambda other: other.delete(), UNKNOWN),
    "changed, and made again": (created, V0, DONE, again, UNKNOWN),
    "not there from the beginning": (lambda other: other.beside(), V0, LOST, nothing, None),
    "any, changed": (created, ANY, DONE, nothing, V1),
    "any, not changed": (created, ANY, LOST, nothing, V1),
    "any, changed by another": (created, ANY, LOST, lambda other: other.write(), UNKNOWN),
    "created": (lambda other: other.beside(), NEW, DONE, nothing, V0),
    "not created, and sent again": (lambda other: other.beside(), NEW, LOST, nothing, V0),
    "created with all above it": (nothing, NEW, LOST, nothing, V0),
    "there from the beginning": (created, NEW, LOST, nothing, None),
    "there from the beginning, and changed": (
        created, NEW, LOST, lambda other: other.write(), None),
    "created, and deleted": (
        lambda other: other.beside(), NEW, DONE, lambda other: other.delete(), UNKNOWN),
    "created, and made again": (lambda other: other.beside(), NEW, DONE, again, UNKNOWN),
    "created by another": (
        lambda other: other.beside(), NEW, LOST, lambda other: other.create(), UNKNOWN),
}  # fmt: skip


def test_a_write_whose_answer_was_lost(zookeeper: str) -> None:
    def run(scene: Scene, case: Case) -> Any:
        before, version, fate, meanwhile, _ = case
        change = {scene.key: Change(OURS, version)}
        return scene.ask(
            before, lambda: scene.store.records.write(change)[scene.key], fate, meanwhile
        )

    of_each(CASES, zookeeper, run)


REMOVALS: dict[str, Case] = {
    "deleted": (DONE, nothing, UNKNOWN),
    "not deleted, and sent again": (LOST, nothing, True),
    "changed by another": (LOST, lambda other: other.write(), False),
    "deleted by another": (LOST, lambda other: other.delete(), UNKNOWN),
    "made again": (LOST, again, UNKNOWN),
}


def test_a_removal_whose_answer_was_lost(zookeeper: str) -> None:
    def run(scene: Scene, case: Case) -> Any:
        fate, meanwhile, _ = case
        return scene.ask(
            created, lambda: scene.store.records.remove({scene.key: V0})[scene.key], fate, meanwhile
        )

    of_each(REMOVALS, zookeeper, run)


def test_a_deletion_whose_answer_was_lost_leaves_what_was_made_anew(zookeeper: str) -> None:
    def meanwhile(other: Other) -> None:
        wait_for(lambda: not other.store.records.read([other.key]), "it is deleted")
        other.create()

    with Scene(zookeeper) as scene:
        assert scene.ask(
            created, lambda: scene.store.records.delete({scene.key: V0}), DONE, meanwhile
        )
        assert scene.other.store.records.read([scene.key])[scene.key].value == OTHERS


REGISTRATIONS: dict[str, Case] = {
    "made": (lambda other: other.beside(), DONE, nothing, V0),
    "not made, and sent again": (lambda other: other.beside(), LOST, nothing, V0),
    "somebody had it": (created, LOST, nothing, None),
    "made, and deleted": (
        lambda other: other.beside(), DONE, lambda other: other.delete(), UNKNOWN),
    "another made it": (
        lambda other: other.beside(), LOST, lambda other: other.create(), UNKNOWN),
}  # fmt: skip


def test_a_registration_whose_answer_was_lost(zookeeper: str) -> None:
    def run(scene: Scene, case: Case) -> Any:
        before, fate, meanwhile, _ = case
        return scene.ask(
            before,
            lambda: scene.store.ephemerals.create({scene.key: OURS})[scene.key],
            fate,
            meanwhile,
        )

    of_each(REGISTRATIONS, zookeeper, run)


GUARDED: dict[str, Case] = {
    "done, and asked for again": (DONE, nothing, None),
    "not done, and asked for again": (LOST, nothing, None),
    "done, and somebody registered since": (DONE, registered, UNKNOWN),
    "done, and deleted": (DONE, lambda other: other.delete(), UNKNOWN),
    "perhaps done": (LOST, registered, UNKNOWN),
}


def test_a_guarded_write_whose_answer_was_lost(zookeeper: str) -> None:
    def run(scene: Scene, case: Case) -> Any:
        fate, meanwhile, _ = case
        write = GuardedWrite(scene.key, OURS, f"{scene.key}/who")
        return scene.ask(
            created, lambda: scene.store.ephemerals.write_where_absent([write]), fate, meanwhile
        )

    of_each(GUARDED, zookeeper, run)


def test_of_several_changes_that_alone_is_in_doubt_of_which_nothing_can_be_known(
    zookeeper: str,
) -> None:
    def change(scene: Scene, beside: str) -> Mapping[str, Any]:
        try:
            return scene.store.records.write(
                {beside: Change(OURS, V0), scene.key: Change(OURS, V0)}
            )
        except PartlyDoneError as exc:
            return exc.answers

    def twice(other: Other) -> None:
        other.write()
        other.write()

    with Scene(zookeeper) as scene:
        beside = f"{scene.key}-beside"
        answers = scene.ask(created_beside, lambda: change(scene, beside), DONE, twice)
    assert answers[beside] == V1
    assert answers[scene.key].outcome is Outcome.UNKNOWN
    assert answers[scene.key].path == scene.key


def test_what_was_never_sent_is_not_in_doubt(zookeeper: str) -> None:
    with zookeeper_proxy(zookeeper) as proxy:
        proxy.fate = lambda method: Fate.LOSE_REQUEST
        store = ZooKeeperStore(
            Settings(
                zookeeper=f"127.0.0.1:{proxy.port}",
                operation_timeout_ms=1_000,
                request_timeout_ms=500,
            )
        )
        with pytest.raises(StoreUnavailableError) as caught:
            store.records.write({"/hqueue/a": Change(OURS, NEW)})
        store.close()
    assert caught.value.outcome is Outcome.NOT_APPLIED
