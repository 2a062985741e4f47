"""Which columns a read has, and which of them may be chosen."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from hqueue import InvalidInputError
from pyspark_hqueue import DefaultSource
from pyspark_hqueue.reading.schema import COLUMNS, HEADERS, RANGES, WITH_HEADERS, arrow_schema
from pyspark_hqueue.reading.source import check_schema


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, COLUMNS),
        ({"includeheaders": "false"}, COLUMNS),
        ({"includeheaders": "True"}, WITH_HEADERS),
        ({"rangesonly": "true", "includeheaders": "true"}, RANGES),
    ],
)
def test_the_options_say_which_columns_there_are(
    options: dict[str, str], columns: StructType
) -> None:
    assert DefaultSource({"queue": "q", **options}).schema() == columns


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"subscribes": "a"}, "subscribes"),
        ({"includeheaders": "yes"}, "includeHeaders"),
        ({"assign": "x", "endingOffsets": "latest"}, "assign"),
        ({"assign": "x", "maxOffsetsPerTrigger": "1"}, "assign"),
        ({"endingOffsets": "x"}, "endingOffsets"),
        ({"maxOffsetsPerTrigger": "x"}, "maxOffsetsPerTrigger"),
        ({"endingOffsets": "latest", "maxOffsetsPerTrigger": "1"}, "endingOffsets"),
    ],
)
def test_an_option_that_is_wrong_in_batch_and_in_a_stream_is_an_error_at_once(
    options: dict[str, str], option: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        DefaultSource({"queue": "q", **options}).schema()
    assert caught.value.option == option


@pytest.mark.parametrize(
    "options",
    [{"startingOffsets": "latest"}, {"minOffsetsPerTrigger": "1"}, {"endingOffsets": "latest"}],
)
def test_an_option_that_only_one_kind_of_read_has_may_be_right(options: dict[str, str]) -> None:
    assert DefaultSource({"queue": "q", **options}).schema() == COLUMNS


def test_what_there_was_before_comes_first() -> None:
    before = ["partition", "timestamp", "sequence", "id", "topic", "value"]
    assert COLUMNS.names == [*before, "key"]
    assert WITH_HEADERS.names == [*before, "key", "headers"]
    assert [field.name for field in WITH_HEADERS if field.nullable] == ["key", "headers"]


def test_headers_in_arrow_are_what_spark_makes_of_kafkas() -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    found = arrow_schema(WITH_HEADERS).field("headers")
    assert found == pa.field("headers", pa.list_(pa.field("element", pair)))


@pytest.mark.parametrize(
    "given",
    [
        COLUMNS,
        StructType(list(COLUMNS)[:-1]),
        StructType([StructField("key", BinaryType()), StructField("value", BinaryType())]),
        StructType([StructField("headers", HEADERS)]),
    ],
)
def test_a_schema_may_choose_columns(given: StructType) -> None:
    check_schema(given, WITH_HEADERS)


@pytest.mark.parametrize(
    "field",
    [
        StructField("value", StringType()),
        StructField("key", BinaryType(), nullable=False),
        StructField("keys", BinaryType()),
        StructField("offset", LongType()),
        StructField("headers", HEADERS),
        StructField("headers", ArrayType(StringType())),
    ],
)
def test_a_schema_with_other_columns_is_refused(field: StructField) -> None:
    with pytest.raises(InvalidInputError, match="give no schema") as caught:
        check_schema(StructType([*list(COLUMNS)[:3], field]), COLUMNS)
    assert caught.value.facts["wrong"] == [field.name]


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="give no schema"):
        check_schema(StructType([]), COLUMNS)
