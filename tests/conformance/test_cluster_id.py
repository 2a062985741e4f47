"""What names a store's cluster."""

from __future__ import annotations

import contextlib

import pytest

from hqueue import ClosedError
from hqueue.store import StorePort
from tests.support.backends import Backend, LossyWay
from tests.support.proxy import Fate


def test_every_store_of_a_cluster_gives_the_same_id(store: StorePort, backend: Backend) -> None:
    with contextlib.closing(backend.store()) as other:
        assert store.cluster_id() == other.cluster_id() == store.cluster_id()
    assert len(store.cluster_id()) >= 16


def test_it_is_asked_for_until_there_is_an_answer(store: StorePort, lossy: LossyWay) -> None:
    fates = iter([Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
    lossy.set_fate(lambda method: next(fates, Fate.PASS))
    with contextlib.closing(lossy.store(request_timeout_ms=300)) as behind:
        assert behind.cluster_id() == store.cluster_id()
    assert next(fates, None) is None


def test_a_closed_store_gives_none(backend: Backend) -> None:
    opened = backend.store()
    opened.close()
    with pytest.raises(ClosedError):
        opened.cluster_id()
