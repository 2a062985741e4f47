"""What the managers of topics' metadata must do on every store."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

import pytest

from hqueue import InvalidInputError, Outcome
from hqueue.errors import (
    BadVersionError,
    MetadataError,
    NoSubscriptionStateError,
    SubscriptionStateExistsError,
    UnsupportedFormatError,
)
from hqueue.metadata.managers import (
    SubscriptionData,
    Versioned,
)
from hqueue.metadata.ports import ANY, NEW, Version
from tests.support.metadata_kinds import KINDS, MetadataKind, owner, ranges, subscription
from tests.support.topic_managers import ManagersBackend, TopicManagers

EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@EACH_KIND
def test_what_is_not_there_is_read_as_none(managers: TopicManagers, kind: MetadataKind) -> None:
    assert kind.read(managers, "t").result() is None
    assert managers.subscriptions.read_subscriptions("t").result() == {}


@EACH_KIND
def test_what_was_written_is_read_with_its_version_and_each_write_makes_another(
    managers: TopicManagers, kind: MetadataKind
) -> None:
    versions = [kind.write(managers, "t", kind.value(0), NEW).result()]
    assert kind.read(managers, "t").result() == Versioned(kind.value(0), versions[0])
    for number in range(1, 4):
        versions.append(kind.write(managers, "t", kind.value(number), versions[-1]).result())
        assert kind.read(managers, "t").result() == Versioned(kind.value(number), versions[-1])
    assert len(set(versions)) == 4


@EACH_KIND
def test_another_version_is_refused_and_changes_nothing(
    managers: TopicManagers, kind: MetadataKind
) -> None:
    first = kind.write(managers, "t", kind.value(0), NEW).result()
    second = kind.write(managers, "t", kind.value(1), first).result()
    for refused in (
        kind.write(managers, "t", kind.value(2), first),
        kind.delete(managers, "t", first),
    ):
        with pytest.raises(BadVersionError) as caught:
            refused.result()
        assert caught.value.version == second
        assert caught.value.path == kind.key(managers, "t")
    assert kind.read(managers, "t").result() == Versioned(kind.value(1), second)


@EACH_KIND
def test_what_is_created_twice_is_refused(managers: TopicManagers, kind: MetadataKind) -> None:
    first = kind.write(managers, "t", kind.value(0), NEW).result()
    with pytest.raises(kind.exists):
        kind.write(managers, "t", kind.value(1), NEW).result()
    assert kind.read(managers, "t").result() == Versioned(kind.value(0), first)


@EACH_KIND
@pytest.mark.parametrize("version", [Version(0), Version(1), Version(2**31 - 1), ANY])
def test_what_is_not_there_is_not_changed(
    managers: TopicManagers, kind: MetadataKind, version: Version
) -> None:
    try:
        managers.others.check_version(version)
    except InvalidInputError:
        version = ANY  # No record of this store can have it: another test is about that.
    # Where a record lies below another there is a node already; it is not a record.
    managers.ownership.write_owner_info("led", owner(0), NEW).result()
    for topic in ("t", "led") if kind.name == "persistence" else ("t",):
        with pytest.raises(kind.missing):
            kind.write(managers, topic, kind.value(0), version).result()
        with pytest.raises(kind.missing):
            kind.delete(managers, topic, version).result()
        assert kind.read(managers, topic).result() is None


@EACH_KIND
def test_any_version_is_written_and_deleted(managers: TopicManagers, kind: MetadataKind) -> None:
    first = kind.write(managers, "t", kind.value(0), NEW).result()
    second = kind.write(managers, "t", kind.value(1), ANY).result()
    assert second != first
    assert kind.read(managers, "t").result() == Versioned(kind.value(1), second)
    kind.delete(managers, "t", ANY).result()
    assert kind.read(managers, "t").result() is None


@EACH_KIND
def test_what_was_deleted_is_gone_until_it_is_created_again(
    managers: TopicManagers, kind: MetadataKind
) -> None:
    version = kind.write(managers, "t", kind.value(0), NEW).result()
    for number in range(1, 4):
        kind.delete(managers, "t", version).result()
        assert kind.read(managers, "t").result() is None
        with pytest.raises(kind.missing):
            kind.delete(managers, "t", version).result()
        with pytest.raises(kind.missing):
            kind.write(managers, "t", kind.value(9), ANY).result()
        version = kind.write(managers, "t", kind.value(number), NEW).result()
        assert kind.read(managers, "t").result() == Versioned(kind.value(number), version)


def test_a_topic_s_records_are_apart(managers: TopicManagers) -> None:
    versions = {kind.name: kind.write(managers, "t", kind.value(0), NEW).result() for kind in KINDS}
    for kind in KINDS:
        kind.delete(managers, "t", versions[kind.name]).result()
        assert kind.read(managers, "t").result() is None
        for other in KINDS[KINDS.index(kind) + 1 :]:
            assert other.read(managers, "t").result() is not None
    for kind in KINDS:
        kind.write(managers, "t", kind.value(1), NEW).result()


def test_a_subscription_is_created_and_replaced_as_a_whole(managers: TopicManagers) -> None:
    face, whole = managers.subscriptions, subscription(0)
    parts = [
        SubscriptionData(),
        SubscriptionData(whole.preferences),
        SubscriptionData(None, whole.state),
    ]
    for part in parts:
        with pytest.raises(InvalidInputError):
            face.create_subscription_data("t", "s", part)
        with pytest.raises(InvalidInputError):
            face.replace_subscription_data("t", "s", part, ANY)
    with pytest.raises(InvalidInputError):
        face.update_subscription_data("t", "s", parts[0], ANY)
    for version_given in (face.update_subscription_data, face.replace_subscription_data):
        with pytest.raises(InvalidInputError):
            version_given("t", "s", whole, NEW)
    assert face.read_subscriptions("t").result() == {}


def test_a_subscription_is_updated_by_hedwigs_rules(managers: TopicManagers) -> None:
    face = managers.subscriptions
    with pytest.raises(NoSubscriptionStateError):
        face.update_subscription_data("t", "s", subscription(0), ANY).result()
    first = face.create_subscription_data("t", "s", subscription(0)).result()
    with pytest.raises(SubscriptionStateExistsError):
        face.create_subscription_data("t", "s", subscription(1)).result()
    second = face.update_subscription_data("t", "s", subscription(1), first).result()
    with pytest.raises(BadVersionError):
        face.update_subscription_data("t", "s", subscription(2), first).result()
    assert face.read_subscription_data("t", "s").result() == Versioned(subscription(1), second)


def test_a_part_is_updated_alone_where_that_is_supported(managers: TopicManagers) -> None:
    face, before, after = managers.subscriptions, subscription(0), subscription(1)
    version = face.create_subscription_data("t", "s", before).result()
    preferences = SubscriptionData(after.preferences)
    state = SubscriptionData(None, after.state)
    if not face.is_partial_update_supported:
        for part in (preferences, state):
            with pytest.raises(InvalidInputError):
                face.update_subscription_data("t", "s", part, version)
        assert face.read_subscription_data("t", "s").result() == Versioned(before, version)
        return
    version = face.update_subscription_data("t", "s", state, version).result()
    read = face.read_subscription_data("t", "s").result()
    assert read == Versioned(SubscriptionData(before.preferences, after.state), version)
    version = face.update_subscription_data("t", "s", preferences, ANY).result()
    assert face.read_subscription_data("t", "s").result() == Versioned(after, version)


def test_a_subscriptions_owner_stays_where_its_other_parts_are_updated(
    managers: TopicManagers,
) -> None:
    face, other = managers.subscriptions, subscription(1)
    owned = SubscriptionData(subscription(0).preferences, subscription(0).state, "loader")
    version = face.create_subscription_data("t", "s", owned).result()
    given = other if face.is_partial_update_supported else replace(other, owner="loader")
    version = face.update_subscription_data("t", "s", given, version).result()
    found = face.read_subscription_data("t", "s").result()
    assert found == Versioned(replace(other, owner="loader"), version)
    version = face.replace_subscription_data("t", "s", other, version).result()
    assert face.read_subscription_data("t", "s").result() == Versioned(other, version)


@EACH_KIND
def test_a_damaged_record_names_itself_and_stops_no_other(
    managers_backend: ManagersBackend, managers: TopicManagers, kind: MetadataKind
) -> None:
    topics = [f"t{number}" for number in range(20)]
    wait([kind.write(managers, topic, kind.value(0), NEW) for topic in topics])
    damaged = {
        "t3": b"\xff\xfe",
        "t4": b"[1]",
        "t5": b'{"version": 9}',
        "t6": b'{"version": 1}',
        "t7": b'{"version": 1, "state": "\\ud800", "owner": "\\udfff", "ranges": "\\ud800"}',
        "t8": b"{" * 10_000,
        "t9": b"[" * 100_000,
        "t10": b"9" * 5_000,
        "t11": b'{"version": 1, "address": 1e999, "ranges": 1e999, "consumed": 1e999}',
        "t12": b'{"version": 1, "' + b"x" * 400_000 + b'": 1}',
    }
    for topic, data in damaged.items():
        managers_backend.damage(kind.key(managers, topic), kind.field, data)
    read = {topic: kind.read(managers, topic) for topic in topics}
    for topic in topics:
        if topic in damaged:
            with pytest.raises(UnsupportedFormatError) as caught:
                read[topic].result()
            assert caught.value.path == kind.key(managers, topic)
            with pytest.raises(kind.exists):
                kind.write(managers, topic, kind.value(1), NEW).result()
        else:
            assert read[topic].result().value == kind.value(0)
    mended = kind.write(managers, "t3", kind.value(1), ANY).result()
    assert kind.read(managers, "t3").result() == Versioned(kind.value(1), mended)
    kind.delete(managers, "t4", ANY).result()
    assert kind.read(managers, "t4").result() is None


def test_a_damaged_subscription_is_left_out_and_logged(
    managers_backend: ManagersBackend, managers: TopicManagers, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        managers.subscriptions.create_subscription_data(
            "t", f"s{number}", subscription(number)
        ).result()
    key = managers.layout.subscription("t", "s1")
    managers_backend.damage(key, "state", b"no record")
    with caplog.at_level(logging.WARNING):
        read = managers.subscriptions.read_subscriptions("t").result()
    assert sorted(read) == ["s0", "s2"]
    assert key in caplog.text


@EACH_KIND
def test_of_many_hubs_that_change_a_record_at_once_each_version_is_won_by_one(
    managers_backend: ManagersBackend, kind: MetadataKind
) -> None:
    hubs = [managers_backend.open() for _ in range(4)]
    start = threading.Barrier(len(hubs))

    def compete(number: int) -> list[tuple[str, Version]]:
        won: list[tuple[str, Version]] = []
        for round_number in range(5):
            topic = f"t{round_number}"
            start.wait(30)
            try:
                version = kind.write(hubs[number], topic, kind.value(number), NEW).result()
                won.append((topic, version))
            except kind.exists:
                version = kind.read(hubs[number], topic).result().version
            start.wait(30)
            known = kind.read(hubs[number], topic).result().version
            start.wait(30)
            for change in (
                lambda topic=topic, known=known: kind.write(
                    hubs[number], topic, kind.value(number), known
                ).result(),
                lambda topic=topic, known=known: (
                    kind.delete(hubs[number], topic, known).result() or Version(-9)
                ),
            ):
                try:
                    won.append((topic, change()))
                except MetadataError:
                    continue
        return won

    with ThreadPoolExecutor(len(hubs)) as pool:
        won = [each for part in pool.map(compete, range(len(hubs))) for each in part]
    for round_number in range(5):
        mine = [version for topic, version in won if topic == f"t{round_number}"]
        # One creates it; of those that then have its version one changes or deletes it.
        assert len(mine) == 2, mine
        assert mine[0] != mine[1]


@EACH_KIND
def test_of_many_deletions_at_once_one_counts(
    managers_backend: ManagersBackend, kind: MetadataKind
) -> None:
    hubs = [managers_backend.open() for _ in range(4)]
    for version in (None, ANY):
        written = kind.write(hubs[0], "t", kind.value(0), NEW).result()
        deleted = [kind.delete(hub, "t", version or written) for hub in hubs for _ in range(3)]
        errors = [future.exception() for future in deleted]
        assert errors.count(None) == 1
        for error in errors:
            # A "no" that a slow gateway may have given to a repetition of its own is not certain.
            is_uncertain = getattr(error, "outcome", None) is Outcome.UNKNOWN
            assert error is None or is_uncertain or type(error) in (kind.missing, BadVersionError)


def test_changes_of_one_record_are_made_in_the_order_of_the_calls(managers: TopicManagers) -> None:
    for kind in KINDS:
        asked: list[Any] = [kind.write(managers, "t", kind.value(0), NEW)]
        asked += [kind.write(managers, "t", kind.value(n), ANY) for n in range(1, 50)]
        asked += [kind.delete(managers, "t", ANY), kind.write(managers, "t", kind.value(99), NEW)]
        for future in asked:
            future.result()
        assert kind.read(managers, "t").result().value == kind.value(99)


def test_thousands_under_way_take_few_threads(managers: TopicManagers) -> None:
    before = threading.active_count()
    most = before
    futures = []
    for number in range(1_000):
        futures.append(
            managers.persistence.write_topic_persistence_info(f"t{number}", ranges(number), NEW)
        )
        most = max(most, threading.active_count())
    wait(futures)
    assert most - before <= 16
    assert len({future.result() for future in futures}) >= 1
    assert len([*managers.persistence.topics()]) == 1_000
