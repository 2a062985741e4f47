"""Topics' metadata as bytes: golden bytes of each encoding, and bytes that are not a record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hqueue import InvalidInputError, MessageID
from hqueue.errors import UnsupportedFormatError
from hqueue.metadata import Address
from hqueue.metadata.blobs import BlobRecords, encode_blob
from hqueue.metadata.fields import FieldRecord
from hqueue.metadata.managers import (
    HubInfo,
    LogRange,
    Rows,
    SubscriptionData,
    SubscriptionPreferences,
    SubscriptionState,
    TopicACL,
    TopicPersistenceInfo,
    Tree,
    encoding,
)
from hqueue.metadata.ports import ANY, NEW, Change
from hqueue.metadata.unanswered_calls import UnansweredCalls
from tests.support.memory.metadata import MemoryServer

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "topics.json").read_text())
FIRST, LAST = MessageID(1_700_000_000_000, 7), MessageID(1_700_000_000_009, 32_767)
OWNER = HubInfo(Address("::1", 7_000), "c4a1-17")
RANGES = (LogRange(0, FIRST, LAST, 3), LogRange(32_766, LAST, None, 2**63 - 1))
MARKED = TopicPersistenceInfo(
    (RANGES[0], LogRange(7, LAST, None, 4, marked=True)),
)
WITH_RULES = TopicPersistenceInfo(RANGES[:1], TopicACL(["loader-*", "b"], manage=[]))
DATA = SubscriptionData(
    SubscriptionPreferences(100, None, 5, {"filter": 'ü = "x"', "a": ""}),
    SubscriptionState(FIRST),
)
BARE = SubscriptionData(SubscriptionPreferences(), SubscriptionState(MessageID(0)))
OWNED = SubscriptionData(BARE.preferences, BARE.state, "loader")

ENCODED = {
    "owner": encoding.encode_owner_info(OWNER),
    "ranges": encoding.encode_persistence_info(TopicPersistenceInfo(RANGES)),
    "marked ranges": encoding.encode_persistence_info(MARKED),
    "no ranges": encoding.encode_persistence_info(TopicPersistenceInfo()),
    "rules": encoding.encode_persistence_info(WITH_RULES),
    "subscription": encoding.encode_subscription(DATA),
    "bare subscription": encoding.encode_subscription(BARE),
    "owned subscription": encoding.encode_subscription(OWNED),
}
DECODED: dict[str, tuple[Any, Any]] = {
    "owner": (encoding.decode_owner_info, OWNER),
    "ranges": (encoding.decode_persistence_info, TopicPersistenceInfo(RANGES)),
    "marked ranges": (encoding.decode_persistence_info, MARKED),
    "no ranges": (encoding.decode_persistence_info, TopicPersistenceInfo()),
    "rules": (encoding.decode_persistence_info, WITH_RULES),
    "subscription": (encoding.decode_subscription, DATA),
    "bare subscription": (encoding.decode_subscription, BARE),
    "owned subscription": (encoding.decode_subscription, OWNED),
}


def test_a_cursor_keeps_calls_without_an_answer() -> None:
    calls = UnansweredCalls(FIRST, LAST, 2, 4)
    preferences = SubscriptionPreferences(unanswered_calls_max=0)
    data = SubscriptionData(preferences, SubscriptionState(FIRST, calls))
    fields = encoding.encode_subscription(data)
    bare = encoding.encode_subscription(SubscriptionData(state=SubscriptionState(FIRST)))["state"]
    kept = (
        f', "unanswered": {{"first": "{FIRST}", "end": "{LAST}", "count": 2, "messages_max": 4}}}}'
    )
    assert fields["state"] == bare[:-1] + kept.encode()
    assert encoding.decode_subscription(fields, "/place") == data


@pytest.mark.parametrize("name", ENCODED)
def test_each_record_is_written_as_by_the_first_release(name: str) -> None:
    assert {field: data.decode() for field, data in ENCODED[name].items()} == GOLDEN["fields"][name]


@pytest.mark.parametrize("name", GOLDEN["fields"])
def test_each_record_of_the_first_release_is_read(name: str) -> None:
    decode, value = DECODED[name]
    fields = {field: text.encode() for field, text in GOLDEN["fields"][name].items()}
    assert decode(fields, "/place") == value


@pytest.mark.parametrize("name", GOLDEN["blobs"])
def test_each_blob_of_the_first_release_is_read(name: str) -> None:
    records = MemoryServer().open().records
    records.write({"/k": Change(GOLDEN["blobs"][name].encode(), NEW)})
    found = BlobRecords(records).read(["/k"])["/k"]
    assert isinstance(found, FieldRecord)
    decode, value = DECODED[name]
    assert decode(found.fields, "/k") == value


@pytest.mark.parametrize("name", GOLDEN["blobs"])
def test_each_blob_is_written_as_by_the_first_release(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda count: "00" * count)
    assert encode_blob(ENCODED[name]).decode() == GOLDEN["blobs"][name]


def test_what_was_emptied_by_the_first_release_is_no_record() -> None:
    records = MemoryServer().open().records
    for number, text in enumerate(GOLDEN["emptied"]):
        records.write({f"/k{number}": Change(text.encode(), NEW)})
        store = BlobRecords(records, leading=lambda key: (f"{key}/below",))
        assert store.read([f"/k{number}"]) == {}
        assert store.delete({f"/k{number}": ANY}) == {f"/k{number}": False}


@pytest.mark.parametrize("layout", [Tree("/hqueue", "q"), Rows("/hqueue", "q")])
def test_each_key_is_where_the_first_release_had_it(layout: Any) -> None:
    keys = [
        [layout.ranges(topic), layout.owner(topic), layout.subscription(topic, subscriber)]
        for topic, subscriber in [("t", "s"), ("a/ü", "."), ("..", "x:1~\0")]
    ]
    assert keys == GOLDEN["keys"][type(layout).__name__]


@pytest.mark.parametrize("name", DECODED)
@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_an_error_that_names_it(name: str, version: object) -> None:
    decode, _ = DECODED[name]
    for field, text in GOLDEN["fields"][name].items():
        changed = json.dumps({**json.loads(text), "version": version})
        fields = {**GOLDEN["fields"][name], field: changed}
        with pytest.raises(UnsupportedFormatError) as caught:
            decode({each: data.encode() for each, data in fields.items()}, "/place")
        assert (caught.value.version, caught.value.path) == (version, "/place")


@pytest.mark.parametrize("name", DECODED)
@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"null", b'{"version": 1}', b'"version"', b"[" * 100_000]
)
def test_what_is_no_record_is_an_error_that_names_its_place(name: str, data: bytes) -> None:
    decode, _ = DECODED[name]
    for field in GOLDEN["fields"][name]:
        fields = {each: text.encode() for each, text in GOLDEN["fields"][name].items()}
        with pytest.raises(UnsupportedFormatError) as caught:
            decode({**fields, field: data}, "/place")
        assert caught.value.path == "/place"


@pytest.mark.parametrize(
    "make",
    [
        lambda: HubInfo("host:1", "i"),  # type: ignore[arg-type]
        lambda: HubInfo(OWNER.address, ""),
        lambda: HubInfo(OWNER.address, "a\nb"),
        lambda: HubInfo(OWNER.address, 7),  # type: ignore[arg-type]
        lambda: LogRange(-1, FIRST),
        lambda: LogRange(2**15, FIRST),
        lambda: LogRange(0, LAST, FIRST),
        lambda: LogRange(0, 7),  # type: ignore[arg-type]
        lambda: LogRange(0, FIRST, "x"),  # type: ignore[arg-type]
        lambda: LogRange(0, FIRST, None, -1),
        lambda: LogRange(True, FIRST),
        lambda: LogRange(0, FIRST, marked=1),  # type: ignore[arg-type]
        lambda: SubscriptionPreferences(0),
        lambda: SubscriptionPreferences(1.5),  # type: ignore[arg-type]
        lambda: SubscriptionPreferences(application=["a"]),  # type: ignore[arg-type]
        lambda: SubscriptionPreferences(application={"a": 1}),  # type: ignore[dict-item]
        lambda: SubscriptionPreferences(application={"\ud800": "x"}),
        lambda: SubscriptionPreferences(application={str(n): "" for n in range(101)}),
        lambda: SubscriptionState(7),  # type: ignore[arg-type]
        lambda: SubscriptionData(SubscriptionState(FIRST)),  # type: ignore[arg-type]
        lambda: SubscriptionData(state=FIRST),  # type: ignore[arg-type]
    ],
)
def test_what_can_t_be_is_refused(make: Any) -> None:
    with pytest.raises(InvalidInputError):
        make()


def test_an_application_keeps_as_many_preferences_as_it_may() -> None:
    most = {str(number): "" for number in range(100)}
    assert SubscriptionPreferences(application=most).application == most


def test_preferences_stay_as_they_were_given() -> None:
    given = {"a": "b"}
    preferences = SubscriptionPreferences(application=given)
    given["a"] = "c"
    assert preferences.application == {"a": "b"}
