"""Topics' metadata, opened by one setting; and the list of hubs as bytes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import ClosedError, InvalidInputError, Settings, SettingsError
from hqueue.errors import UnsupportedFormatError
from hqueue.message_id import MessageID
from hqueue.metadata import Address
from hqueue.metadata.managers import (
    AvailableHub,
    HubInfo,
    LogRange,
    TopicMetadata,
    TopicPersistenceInfo,
)
from hqueue.metadata.managers.hubs import decode_hub, encode_hub
from hqueue.metadata.ports import NEW
from tests.support.backends import MemoryBackend
from tests.support.client_faces import FACES, client_by

Connect = Callable[..., contextlib.AbstractContextManager[hqueue.Client]]

WAIT_S = 30.0
INFO = TopicPersistenceInfo((LogRange(0, MessageID.parse("1700000000000-0")),))
HUB = HubInfo(Address("host", 4_080), "start-1")


def read(metadata: TopicMetadata) -> object:
    return metadata.persistence.read_topic_persistence_info("t").result(WAIT_S)


@pytest.fixture(params=FACES)
def connect(request: pytest.FixtureRequest) -> Connect:
    """Clients of one cluster, by each face."""
    backend = MemoryBackend()

    @contextlib.contextmanager
    def connect(**settings: object) -> Iterator[hqueue.Client]:
        with backend.connect(**settings) as client, client_by(request.param, client) as face:
            yield face

    return connect


@pytest.mark.parametrize(
    ("store", "partial"), [("zookeeper", False), ("hbase", True), ("memory", True)]
)
def test_one_setting_chooses_the_store(connect: Connect, store: str, partial: bool) -> None:
    queue = uuid.uuid4().hex
    with connect(metadata_store=store) as client, client.topic_metadata(queue) as metadata:
        assert metadata.store == store
        assert metadata.subscriptions.is_partial_update_supported == partial
        written = metadata.persistence.write_topic_persistence_info("t", INFO, NEW)
        assert written.result(WAIT_S) >= 0
        assert [entry.subject for entry in metadata.entries()] == [("persistence", "t", None)]
        with connect() as other, other.topic_metadata(queue, store=store) as again:
            assert read(again) == read(metadata)
        for elsewhere in {"zookeeper", "hbase", "memory"} - {store}:
            with client.topic_metadata(queue, store=elsewhere) as empty:
                assert read(empty) is None
        with client.topic_metadata(queue + "x") as another:
            assert read(another) is None


def test_owners_in_zookeeper_end_with_the_clients_session(connect: Connect) -> None:
    queue = uuid.uuid4().hex
    with connect() as watching, watching.topic_metadata(queue) as metadata:
        with connect() as client, client.topic_metadata(queue) as owning:
            owning.ownership.write_owner_info("t", HUB, NEW).result(WAIT_S)
            assert metadata.ownership.read_owner_info("t").result(WAIT_S)
        assert metadata.ownership.read_owner_info("t").result(WAIT_S) is None


def test_what_is_closed_takes_no_requests_and_leaves_the_client_open(connect: Connect) -> None:
    with connect() as client:
        metadata = client.topic_metadata("q")
        metadata.close()
        metadata.close()
        with pytest.raises(ClosedError):
            read(metadata)
        with client.topic_metadata("q") as again:
            assert read(again) is None


def test_what_is_wrong_is_refused_before_anything_happens(connect: Connect) -> None:
    with pytest.raises(SettingsError):
        Settings(metadata_store="paper")
    with connect() as client:
        with pytest.raises(SettingsError):
            client.topic_metadata("q", store="paper")
        with pytest.raises(InvalidInputError):
            client.topic_metadata("no/queue")
        with client.topic_metadata("q") as metadata, pytest.raises(InvalidInputError):
            list(metadata.entries(["colour"]))


def test_a_hubs_record_is_these_bytes() -> None:
    golden = b'{"version": 1, "incarnation": "start-1", "load": 3}'
    assert encode_hub(AvailableHub(HUB, 3)) == golden
    assert decode_hub(golden, "", HUB.address) == AvailableHub(HUB, 3)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"version": 2, "incarnation": "a", "load": 1}',
        b'{"version": 1, "incarnation": 1, "load": 1}',
        b'{"version": 1, "incarnation": "a", "load": -1}',
        b'{"version": 1, "incarnation": "a", "load": "1"}',
        b'{"version": 1, "incarnation": "a"}',
    ],
)
def test_a_hubs_record_that_is_none_is_named(data: bytes) -> None:
    with pytest.raises(UnsupportedFormatError) as caught:
        decode_hub(data, "/where", HUB.address)
    assert caught.value.path == "/where"
