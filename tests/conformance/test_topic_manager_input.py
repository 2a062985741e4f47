"""What the managers of topics' metadata take as names, versions and values, on every store."""

from __future__ import annotations

from concurrent.futures import wait
from typing import Any

import pytest

from hqueue import InvalidInputError, MessageID
from hqueue.metadata.managers import (
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
    Versioned,
)
from hqueue.metadata.ports import ANY, NEW
from tests.support.metadata_kinds import KINDS, MetadataKind, subscription
from tests.support.topic_managers import ManagersBackend, TopicManagers

EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)

NAMES = [
    "a",
    "with/slash",
    ".",
    "..",
    "...",
    "nul\0",
    "per%cent",
    "%2E",
    " ",
    "ü€😀",
    "\x7f\u0085\ufffe\U000f0000",
    "zookeeper",
    "hub",
    "subscribers",
    "host:1",
    "?*[]#|\\\"'\n",
    "x" * 200,
]


@EACH_KIND
def test_names_of_any_characters_are_kept_apart_and_found_again(
    managers: TopicManagers, kind: MetadataKind
) -> None:
    written = [kind.write(managers, name, kind.value(n), NEW) for n, name in enumerate(NAMES)]
    wait(written)
    for number, name in enumerate(NAMES):
        read = kind.read(managers, name).result()
        assert read == Versioned(kind.value(number), written[number].result())
    if kind.name == "persistence":
        assert sorted(managers.persistence.topics()) == sorted(NAMES)


def test_subscribers_of_any_name_are_read_together(managers: TopicManagers) -> None:
    created = [
        managers.subscriptions.create_subscription_data("t", name, subscription(number))
        for number, name in enumerate(NAMES)
    ]
    wait(created)
    managers.subscriptions.create_subscription_data("t2", "x", subscription(0)).result()
    managers.subscriptions.create_subscription_data("t/u", "x", subscription(0)).result()
    assert managers.subscriptions.read_subscriptions("t").result() == {
        name: Versioned(subscription(number), created[number].result())
        for number, name in enumerate(NAMES)
    }


@pytest.mark.parametrize("topic", ["", "\ud800", "x" * 256, "ü" * 128, 7, None, b"t"])
@EACH_KIND
def test_a_topic_that_can_t_be_is_refused_at_once(
    managers: TopicManagers, kind: MetadataKind, topic: Any
) -> None:
    for operation in (
        lambda: kind.read(managers, topic),
        lambda: kind.write(managers, topic, kind.value(0), NEW),
        lambda: kind.delete(managers, topic, ANY),
    ):
        with pytest.raises(InvalidInputError):
            operation()


@pytest.mark.parametrize("name", ["", "\udfff", "x" * 201, 7, None, b"s"])
def test_a_subscriber_that_can_t_be_is_refused_at_once(managers: TopicManagers, name: Any) -> None:
    face = managers.subscriptions
    for operation in (
        lambda: face.create_subscription_data("t", name, subscription(0)),
        lambda: face.replace_subscription_data("t", name, subscription(0), ANY),
        lambda: face.update_subscription_data("t", name, subscription(0), ANY),
        lambda: face.delete_subscription_data("t", name, ANY),
        lambda: face.read_subscription_data("t", name),
    ):
        with pytest.raises(InvalidInputError):
            operation()
    assert face.read_subscriptions("t").result() == {}


@EACH_KIND
def test_a_version_that_no_record_can_have_is_refused_at_once(
    managers: TopicManagers, kind: MetadataKind, managers_backend: ManagersBackend
) -> None:
    written = kind.write(managers, "t", kind.value(0), NEW).result()
    never: list[Any] = [-3, 1.5, "1", None, True, b"", 2**70]
    if managers_backend.version_max < 2**63:
        never.append(managers_backend.version_max + 1)
    for version in never:
        if version == 2**70 and managers_backend.version_max >= 2**63:
            continue
        with pytest.raises(InvalidInputError):
            kind.write(managers, "t", kind.value(1), version)
        with pytest.raises(InvalidInputError):
            kind.delete(managers, "t", version)
    with pytest.raises(InvalidInputError):
        kind.delete(managers, "t", NEW)
    assert kind.read(managers, "t").result() == Versioned(kind.value(0), written)


@EACH_KIND
@pytest.mark.parametrize("value", [None, "text", 7, b"bytes", [1], {"owner": "x"}])
def test_a_value_of_another_kind_is_refused_at_once(
    managers: TopicManagers, kind: MetadataKind, value: Any
) -> None:
    with pytest.raises((InvalidInputError, TypeError)):
        kind.write(managers, "t", value, NEW)
    assert kind.read(managers, "t").result() is None


def test_what_is_larger_than_a_record_is_refused_and_what_just_fits_is_not(
    managers: TopicManagers,
) -> None:
    def wanted(size: int) -> SubscriptionData:
        preferences = SubscriptionPreferences(application={"a": "x" * size})
        return SubscriptionData(preferences, SubscriptionState(MessageID(1)))

    face = managers.subscriptions
    with pytest.raises(InvalidInputError) as caught:
        face.create_subscription_data("t", "s", wanted(512 * 1024))
    fits = 512 * 1024 - (caught.value.bytes - caught.value.bytes_max)
    for size in (10_000_000, fits + 1):
        with pytest.raises(InvalidInputError):
            face.create_subscription_data("t", "s", wanted(size))
    assert face.read_subscription_data("t", "s").result() is None
    version = face.create_subscription_data("t", "s", wanted(fits)).result()
    assert face.read_subscription_data("t", "s").result() == Versioned(wanted(fits), version)
