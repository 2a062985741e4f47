"""A record that is not answered for in time: what is said of the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from hqueue import Outcome, StoreUnavailableError
from hqueue.metadata.managers import SubscriptionData, SubscriptionPreferences, Versioned
from hqueue_workers.hub.subscribing.subscription_records import SubscriptionRecords

BOUND_S = 0.01
PREFERENCES = SubscriptionPreferences()


class Slow:
    """Answers no change, and a read if that is wanted."""

    is_partial_update_supported = True

    def __init__(self, *, reads: bool) -> None:
        self._reads = reads

    def read_subscription_data(self, topic: str, subscriber: str) -> Future[Any]:
        asked: Future[Any] = Future()
        if self._reads:
            asked.set_result(Versioned(SubscriptionData(PREFERENCES, None), 0))
        return asked

    def create_subscription_data(self, *given: Any) -> Future[Any]:
        return Future()

    update_subscription_data = delete_subscription_data = create_subscription_data


def outcome_of(
    call: Callable[[SubscriptionRecords], Coroutine[Any, Any, Any]], *, reads: bool
) -> Outcome:
    async def failure() -> StoreUnavailableError:
        manager: Any = Slow(reads=reads)
        with pytest.raises(StoreUnavailableError) as caught:
            await call(SubscriptionRecords(manager, BOUND_S))
        return caught.value

    return asyncio.run(failure()).outcome


@pytest.mark.parametrize(
    "change",
    [
        lambda records: records.create("t", "sub", PREFERENCES, 0, "sub"),
        lambda records: records.update("t", "sub", 0, consumed=1),
        lambda records: records.delete("t", "sub"),
    ],
    ids=["create", "update", "delete"],
)
def test_a_change_may_be_made_yet(
    change: Callable[[SubscriptionRecords], Coroutine[Any, Any, Any]],
) -> None:
    assert outcome_of(change, reads=True) is Outcome.UNKNOWN


@pytest.mark.parametrize("method", ["read", "delete"])
def test_where_the_record_was_not_read_nothing_was_changed(method: str) -> None:
    outcome = outcome_of(lambda records: getattr(records, method)("t", "sub"), reads=False)
    assert outcome is Outcome.NOT_APPLIED
