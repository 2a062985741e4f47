"""Which tables are refused."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_hqueue.jobs.archive_table import column_differences
from pyspark_hqueue.reading.schema import COLUMNS, HEADERS, WITH_HEADERS

NULLABLE = StructType([StructField(field.name, field.dataType) for field in WITH_HEADERS])


def changed(**columns: StructField | None) -> StructType:
    """The columns of an archive, with some replaced, left out or added."""
    fields = {field.name: field for field in NULLABLE} | columns
    return StructType([field for field in fields.values() if field is not None])


@pytest.mark.parametrize(
    "there",
    [
        WITH_HEADERS,
        NULLABLE,
        StructType(list(reversed(NULLABLE.fields))),
        changed(headers=StructField("headers", ArrayType(HEADERS.elementType, containsNull=False))),
    ],
)
def test_order_and_null_constraints_make_no_difference(there: StructType) -> None:
    assert column_differences(there, WITH_HEADERS) == []


@pytest.mark.parametrize(
    ("there", "difference"),
    [
        (COLUMNS, "it has no column headers array<struct<key:string,value:binary>>"),
        (changed(date=StructField("date", DateType())), "it has an extra column date"),
        (changed(id=StructField("id", StringType())), "id is string, not bigint"),
        (changed(sequence=StructField("sequence", LongType())), "sequence is bigint, not smallint"),
        (changed(key=StructField("key", BinaryType(), nullable=False)), "key does not allow nulls"),
        (changed(Topic=StructField("Topic", StringType())), "it has an extra column Topic"),
    ],
)
def test_each_difference_is_named(there: StructType, difference: str) -> None:
    assert column_differences(there, WITH_HEADERS) == [difference]


def test_names_that_differ_by_case_are_the_same_where_the_session_says_so() -> None:
    upper = StructType(
        [StructField(field.name.upper(), field.dataType) for field in WITH_HEADERS.fields]
    )
    assert column_differences(upper, WITH_HEADERS) == []
    differences = column_differences(upper, WITH_HEADERS, case_sensitive=True)
    assert "it has no column id bigint" in differences
    assert "it has an extra column ID" in differences


def test_all_differences_are_named() -> None:
    there = changed(id=None, key=StructField("key", StringType()))
    assert column_differences(there, WITH_HEADERS) == [
        "it has no column id bigint",
        "key is string, not binary",
    ]
