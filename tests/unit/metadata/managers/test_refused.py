"""What is said of a change that was refused was so at some moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future

import pytest

from hqueue.errors import BadVersionError, NoSubscriptionStateError
from hqueue.message_id import MessageID
from hqueue.metadata.blobs import BlobRecords
from hqueue.metadata.fields import FieldChange, FieldRecords
from hqueue.metadata.managers import (
    MemoryFields,
    Pipeline,
    Rows,
    SubscriptionData,
    SubscriptionDataManager,
    SubscriptionPreferences,
    SubscriptionState,
)
from hqueue.metadata.ports import NEW, Version
from tests.support.memory.metadata import MemoryServer

LAYOUT = Rows("/hqueue", "q")
KEY = LAYOUT.subscription("t", "s")
DATA = SubscriptionData(SubscriptionPreferences(), SubscriptionState(MessageID(1)))


class Refusing:
    """A store in which something happens between a refusal and the look that follows.

    Args:
        store: where records lie.
        between: what happens.
    """

    def __init__(self, store: FieldRecords, between: Callable[[], object]) -> None:
        self._store = store
        self._between = between

    def write(self, changes: Mapping[str, FieldChange]) -> Mapping[str, Version | None]:
        written = self._store.write(changes)
        self._between()
        return written

    def delete(self, versions: Mapping[str, Version]) -> Mapping[str, bool]:
        deleted = self._store.delete(versions)
        self._between()
        return deleted

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def blobs() -> FieldRecords:
    """On a store that counts versions from the beginning when a record is made again."""
    return BlobRecords(MemoryServer().open().records)


@pytest.mark.parametrize("open_store", [blobs, MemoryFields])
@pytest.mark.parametrize("deletes", [False, True], ids=["changed", "deleted"])
def test_a_record_that_comes_after_a_refusal_is_not_said_to_have_another_version_than_its_own(
    open_store: Callable[[], FieldRecords], deletes: bool
) -> None:
    store = open_store()
    direct = SubscriptionDataManager(Pipeline(store, 20), LAYOUT)
    version = direct.create_subscription_data("t", "s", DATA).result()
    direct.delete_subscription_data("t", "s", version).result()
    again: list[Version] = []

    def create() -> None:
        again.append(direct.create_subscription_data("t", "s", DATA).result())

    late = SubscriptionDataManager(Pipeline(Refusing(store, create), 20), LAYOUT)  # type: ignore[arg-type]
    refused: Future[object] = (
        late.delete_subscription_data("t", "s", version)  # type: ignore[assignment]
        if deletes
        else late.replace_subscription_data("t", "s", DATA, version)
    )
    with pytest.raises(BadVersionError) as caught:
        refused.result()
    assert caught.value.facts["given"] == version
    if again == [version]:
        assert "had another version" in caught.value.text
        assert "version" not in caught.value.facts
    else:
        assert "changed since this version of it was read" in caught.value.text
        assert [caught.value.facts["version"]] == again


def test_a_record_that_has_another_version_and_one_that_is_not_there_are_said_so() -> None:
    manager = SubscriptionDataManager(Pipeline(blobs(), 20), LAYOUT)
    with pytest.raises(NoSubscriptionStateError):
        manager.replace_subscription_data("t", "s", DATA, Version(0)).result()
    version = manager.create_subscription_data("t", "s", DATA).result()
    with pytest.raises(BadVersionError) as caught:
        manager.replace_subscription_data("t", "s", DATA, Version(version + 7)).result()
    assert caught.value.facts["version"] == version != NEW
