"""Changes of a row are written by hand, and are what protobuf would write."""

from __future__ import annotations

import pytest

from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.regions import Region
from hqueue.hbase.native.requests import EQUAL, has_value, mutate, put_of
from hqueue.settings.addresses import Address

LONG = bytes(range(256)) * 70


@pytest.mark.parametrize("row", [b"r", LONG])
@pytest.mark.parametrize("value", [None, b"", b"v", LONG])
def test_a_condition_is_what_protobuf_would_write(row: bytes, value: bytes | None) -> None:
    comparable = pb.BinaryComparator(comparable=pb.ByteArrayComparable(value=value))
    expected = pb.Condition(
        row=row,
        family=b"f",
        qualifier=b"qualifier",
        compare_type=EQUAL,
        comparator=pb.Comparator(
            name="org.apache.hadoop.hbase.filter.BinaryComparator",
            serialized_comparator=comparable.SerializeToString(),
        ),
    )
    assert has_value(row, (b"f", b"qualifier"), value) == expected.SerializeToString()


@pytest.mark.parametrize("count", [1, 200, 65_536])
@pytest.mark.parametrize("conditional", [True, False])
def test_a_put_is_what_protobuf_would_write(count: int, *, conditional: bool) -> None:
    region = Region(LONG, b"", b"", Address("host", 1))
    condition = has_value(b"row", (b"f", b"q"), b"v") if conditional else None
    request = mutate(region, put_of(b"row", count), condition, [b"cells"], 5)
    expected = pb.MutateRequest(
        region=region.specifier,
        mutation=pb.MutationProto(
            row=b"row", mutate_type=pb.MutationProto.PUT, associated_cell_count=count
        ),
        condition=pb.Condition.FromString(condition) if condition else None,
    )
    assert request.message == expected.SerializeToString()
    assert (request.address, request.method) == (region.address, b"Mutate")
    assert (request.cells, request.cell_bytes) == ([b"cells"], 5)
