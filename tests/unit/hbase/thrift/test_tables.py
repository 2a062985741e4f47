"""What a table's descriptor says of a queue, and when it is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hqueue.errors import NotAQueueError
from hqueue.hbase.schema import LOG, MESSAGE
from hqueue.hbase.thrift.tables import _description
from hqueue.settings.limits import PARTITIONS_MAX, TTL_SECONDS_MAX


def descriptor(
    partitions: bytes | None = b"8",
    *,
    families: tuple[bytes, ...] = (MESSAGE, LOG),
    ttl: int | None = 3_600,
    compression: bytes | None = None,
    **attributes: bytes,
) -> Any:
    """A descriptor as a gateway gives it."""
    values = {key.replace("__", ".").encode(): value for key, value in attributes.items()}
    if partitions is not None:
        values[b"hqueue.partitions"] = partitions
    column = {} if compression is None else {b"COMPRESSION": compression}
    return SimpleNamespace(
        tableName=SimpleNamespace(ns=b"default", qualifier=b"events"),
        attributes=values,
        columns=[
            SimpleNamespace(name=name, timeToLive=ttl, attributes=column) for name in families
        ],
    )


@pytest.mark.parametrize("partitions", [b"1", b"8", b"%d" % PARTITIONS_MAX])
def test_a_table_with_bodies_and_a_number_of_partitions_is_a_queue(partitions: bytes) -> None:
    found = _description(descriptor(partitions), True)
    assert (found.name, found.partitions, found.ttl_seconds) == ("events", int(partitions), 3_600)


@pytest.mark.parametrize(
    "partitions", [None, b"", b"0", b"-1", b"x", b"8 ", b"%d" % (PARTITIONS_MAX + 1), b"123456"]
)
def test_a_table_without_a_number_of_partitions_that_can_be_is_no_queue(
    partitions: bytes | None,
) -> None:
    with pytest.raises(NotAQueueError):
        _description(descriptor(partitions), True)


def test_a_table_without_bodies_is_no_queue() -> None:
    with pytest.raises(NotAQueueError):
        _description(descriptor(families=(LOG,)), True)


@pytest.mark.parametrize("ttl", [None, TTL_SECONDS_MAX])
def test_what_never_expires_has_no_time_to_live(ttl: int | None) -> None:
    assert _description(descriptor(ttl=ttl), None).ttl_seconds is None


def test_compression_is_the_family_s_and_none_where_it_says_nothing() -> None:
    assert _description(descriptor(), True).attributes["compression"] == "NONE"
    assert _description(descriptor(compression=b"ZSTD"), True).attributes["compression"] == "ZSTD"


def test_what_an_operator_set_past_hqueue_is_as_hbase_has_it() -> None:
    odd = descriptor(compression=b"\xffodd")
    assert _description(odd, True).attributes["compression"] == "\\xffodd"
