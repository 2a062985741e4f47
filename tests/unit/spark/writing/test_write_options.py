"""The columns that a write takes, whatever their case."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from hqueue import InvalidInputError
from pyspark_hqueue.writing.write_options import WriteOptions, check_columns, columns_of


def options_of(**given: str) -> WriteOptions:
    return WriteOptions.of({"queue": "events", **given}, "batch")


def test_case_does_not_matter_unless_the_session_is_case_sensitive() -> None:
    names = ["TOPIC", "Value", "KEY", "other"]
    found = {"topic": "TOPIC", "value": "Value", "key": "KEY"}
    assert columns_of(names, options_of()) == found
    with pytest.raises(InvalidInputError, match="a write needs the columns") as caught:
        columns_of(names, options_of(), case_sensitive=True)
    assert caught.value.facts["missing"] == ["topic", "value"]
    exact = ["topic", "value", "KEY"]
    assert columns_of(exact, options_of(), case_sensitive=True) == {
        "topic": "topic",
        "value": "value",
    }


def test_a_column_with_the_very_name_comes_first_and_two_others_are_refused() -> None:
    assert columns_of(["VALUE", "value", "topic"], options_of())["value"] == "value"
    for names in (["VALUE", "Value", "topic"], ["value", "value", "topic"]):
        with pytest.raises(InvalidInputError, match="two columns have the same name"):
            columns_of(names, options_of())


def test_types_are_checked_by_any_case() -> None:
    fields = [StructField("Topic", StringType()), StructField("VALUE", BinaryType())]
    check_columns(StructType(fields), options_of(), overwrite=False)
    for wrong in ("Partition", "HEADERS"):
        with pytest.raises(InvalidInputError, match="unsupported type") as caught:
            check_columns(
                StructType([*fields, StructField(wrong, StringType())]),
                options_of(),
                overwrite=False,
            )
        assert caught.value.facts["column"] == wrong
    with pytest.raises(InvalidInputError, match="unsupported type"):
        check_columns(
            StructType([StructField("Value", LongType())]),
            options_of(topic="t"),
            overwrite=False,
        )
