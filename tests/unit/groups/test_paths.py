"""Where a group lies, to the letter."""

from __future__ import annotations

import pytest

from hqueue import InvalidInputError, MessageID
from hqueue.groups.paths import GroupPaths, group_name
from hqueue.metadata import PartitionKey
from hqueue.metadata.encoding import (
    decode_member,
    decode_offset,
    decode_owner,
    encode_member,
    encode_offset,
    encode_owner,
)

KEY = PartitionKey("ns:clicks", 7)


def test_the_directories_are_those_of_kafkas_first_consumers() -> None:
    paths = GroupPaths("/hqueue", "g")
    assert paths.member("host:1f") == "/hqueue/consumers/g/ids/host:1f"
    assert paths.owner(KEY) == "/hqueue/consumers/g/owners/ns:clicks/0-7"
    assert paths.offset(KEY) == "/hqueue/consumers/g/offsets/ns:clicks/0-7"
    assert paths.consumer(paths.member("host:1f")) == "host:1f"
    assert paths.partition_key(paths.owner(KEY)) == paths.partition_key(paths.offset(KEY)) == KEY


def test_what_is_another_brokers_or_nobodys_has_no_partition() -> None:
    paths = GroupPaths("/hqueue", "g")
    assert paths.partition_key(GroupPaths("/hqueue", "g", broker=3).owner(KEY)) is None
    assert paths.partition_key("/hqueue/consumers/g/owners/q/seven") is None


@pytest.mark.parametrize("name", ["a/b", ".", "..", "ä ö", "%2F", "x" * 200])
def test_names_have_any_characters(name: str) -> None:
    paths = GroupPaths("/hqueue", name)
    path = paths.member(name)
    assert path.count("/") == 5
    assert path.rpartition("/")[2] not in (".", "..")
    assert paths.consumer(path) == name
    assert group_name(paths.top.rpartition("/")[2]) == name


@pytest.mark.parametrize("segment", ["not escaped", "%zz", "%ff", "a%2fb", "x" * 201, "", "%2e"])
def test_what_no_group_is_escaped_to_is_no_groups_segment(segment: str) -> None:
    assert group_name(segment) is None


@pytest.mark.parametrize("name", ["", "x" * 201, None, 7, "\ud800"])
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidInputError):
        GroupPaths("/hqueue", name)  # type: ignore[arg-type]


def test_records_are_json_with_a_version() -> None:
    assert encode_member({"q": 2}) == b'{"version": 1, "streams": {"q": 2}}'
    assert decode_member(encode_member({"q": 2}), "") == {"q": 2}
    offset = encode_offset(MessageID(5, 1), 7, "c")
    assert offset == b'{"version": 1, "next": "5-1", "ordinal": 7, "consumer": "c"}'
    assert decode_offset(offset, "") == (MessageID(5, 1), 7)
    assert decode_offset(b'{"version": 1, "next": "5-1"}', "") == (MessageID(5, 1), None)
    assert encode_owner("c", "consumer") == b'{"version": 1, "consumer": "c"}'
    assert decode_owner(encode_owner("c", "consumer"), "", "consumer") == "c"
