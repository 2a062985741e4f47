"""asyncio's face has the blocking one's nouns, with the same calls."""

from __future__ import annotations

import inspect

import pytest

import hqueue
import hqueue.aio
from hqueue.metadata import managers

PAIRS = {
    hqueue.Client: hqueue.aio.Client,
    hqueue.Queue: hqueue.aio.Queue,
    hqueue.Producer: hqueue.aio.Producer,
    hqueue.Delivery: hqueue.aio.Delivery,
    hqueue.Scanner: hqueue.aio.Scanner,
    hqueue.TopicScanner: hqueue.aio.TopicScanner,
    hqueue.SkippedBatches: hqueue.aio.SkippedBatches,
    hqueue.Consumer: hqueue.aio.Consumer,
    hqueue.ExactlyOnceProcessor: hqueue.aio.ExactlyOnceProcessor,
    hqueue.DeadLetters: hqueue.aio.DeadLetters,
    hqueue.Subscriber: hqueue.aio.Subscriber,
    hqueue.HubClient: hqueue.aio.HubClient,
    hqueue.HubTopic: hqueue.aio.HubTopic,
    hqueue.TopicSubscription: hqueue.aio.TopicSubscription,
    hqueue.HubQueue: hqueue.aio.HubQueue,
    hqueue.HubScanner: hqueue.aio.HubScanner,
    hqueue.HubProducer: hqueue.aio.HubProducer,
    managers.TopicMetadata: hqueue.aio.TopicMetadata,
    managers.TopicOwnershipManager: hqueue.aio.TopicOwnershipManager,
    managers.TopicPersistenceManager: hqueue.aio.TopicPersistenceManager,
    managers.SubscriptionDataManager: hqueue.aio.SubscriptionDataManager,
    managers.Hubs: hqueue.aio.Hubs,
    managers.HubRegistration: hqueue.aio.HubRegistration,
    managers.OwnerElection: hqueue.aio.OwnerElection,
    managers.MetadataMigration: hqueue.aio.MetadataMigration,
}

ONLY_BLOCKING = {
    "Client": {"coordination": "a session that threads use"},
    "Hubs": {"store": "a session that threads use"},
    "Queue": {
        "deadline": "roles in loops have it from `hqueue.engine.LoopReader`",
        "poll": "roles in loops have it from `hqueue.engine.LoopReader`",
        "reader": "roles in loops have it from `hqueue.engine.LoopReader`",
    },
    "Consumer": {"commit_async": "any task may await `commit`, also while another one polls"},
}

OTHER_PARAMETERS = {
    "Consumer.subscribe": "callbacks may be coroutine functions",
    "Delivery.exception": "it does not wait: a delivery is awaited",
    "Delivery.result": "it does not wait: a delivery is awaited",
    "HubProducer.close": "`asyncio.timeout` bounds it",
    "HubProducer.flush": "`asyncio.timeout` bounds it",
    "HubQueue.partitions": "it makes a request, and a property is not awaited",
    "Producer.close": "`asyncio.timeout` bounds it",
    "Producer.flush": "`asyncio.timeout` bounds it",
    "Subscriber.wait": "`asyncio.timeout` bounds it",
    "SubscriptionDataManager.is_partial_update_supported": "it may ask ZooKeeper",
    "TopicMetadata.store": "it may ask ZooKeeper",
    "TopicSubscription.wait": "`asyncio.timeout` bounds it",
}


def calls_of(kind: type) -> dict[str, object]:
    return {
        name: item
        for name, item in inspect.getmembers(kind)
        if not name.startswith("_") and not inspect.ismemberdescriptor(item)
    }


@pytest.mark.parametrize("blocking", PAIRS, ids=lambda kind: kind.__name__)
def test_both_faces_have_the_same_calls(blocking: type) -> None:
    asynchronous = PAIRS[blocking]
    missing = calls_of(blocking).keys() - calls_of(asynchronous).keys()
    assert missing == ONLY_BLOCKING.get(asynchronous.__name__, {}).keys()
    more = calls_of(asynchronous).keys() - calls_of(blocking).keys()
    assert more <= {"settings"}, "a blocking client has it as an attribute"


@pytest.mark.parametrize("blocking", PAIRS, ids=lambda kind: kind.__name__)
def test_a_call_has_the_same_parameters_and_a_docstring_in_both_faces(blocking: type) -> None:
    asynchronous = PAIRS[blocking]
    for name, call in calls_of(asynchronous).items():
        assert inspect.getdoc(call), name
        if (
            callable(call)
            and hasattr(blocking, name)
            and f"{asynchronous.__name__}.{name}" not in OTHER_PARAMETERS
        ):
            expected = inspect.signature(getattr(blocking, name)).parameters
            assert inspect.signature(call).parameters == expected, name


def test_both_faces_connect_to_hubs_by_the_same_call() -> None:
    assert (
        inspect.signature(hqueue.connect_hubs).parameters
        == inspect.signature(hqueue.aio.connect_hubs).parameters
    )
