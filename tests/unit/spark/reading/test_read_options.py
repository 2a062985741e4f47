"""The options of the Spark data source, read without Spark."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest

from hqueue import HQueueError, InvalidInputError, MessageID, SettingsError
from pyspark_hqueue.reading.read_options import Bound, ReadOptions

AT = MessageID(1_767_225_600_000)


def batch(**given: str) -> ReadOptions:
    return ReadOptions.of({"queue": "q", **given}, "batch")


def stream(**given: str) -> ReadOptions:
    return ReadOptions.of({"queue": "q", **given}, "stream")


def test_what_is_not_given_reads_all_there_is_in_batch_and_what_comes_in_a_stream() -> None:
    assert (batch().start, batch().stop) == (Bound("earliest"), Bound("latest"))
    assert stream().start == Bound("latest")
    for options in (batch(), stream()):
        assert options.topics is None
        assert options.partitions is None
        assert options.fail_on_data_loss


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("subscribe", "a, b,c", "topics", frozenset("abc")),
        ("subscribePattern", "click.*", "topics", re.compile("click.*")),
        ("assign", "[0, 2]", "partitions", frozenset({0, 2})),
        ("assign", "0-2,5", "partitions", frozenset({0, 1, 2, 5})),
        ("startingOffsets", "earliest", "start", Bound("earliest")),
        (
            "startingOffsets",
            "1767225600000-7",
            "start",
            Bound(MessageID(AT.timestamp, 7), {}, True),
        ),
        ("startingOffsets", str(int(AT)), "start", Bound(AT, {}, True)),
        (
            "startingOffsets",
            f'{{"0": -2, "1": "1767225600000-0", "2": {int(AT)}}}',
            "start",
            Bound(None, {0: "earliest", 1: AT, 2: AT}, True),
        ),
        ("startingTimestamp", "1767225600000", "start", Bound(AT)),
        ("startingTimestamp", "2026-01-01T00:00:00Z", "start", Bound(AT)),
        ("startingTimestamp", "2026-01-01T01:00:00+01:00", "start", Bound(AT)),
        ("startingOffsetsByTimestamp", '{"3": 1767225600000}', "start", Bound(None, {3: AT})),
        ("endingOffsets", "latest", "stop", Bound("latest")),
        ("endingOffsets", '{"0": -1}', "stop", Bound(None, {0: "latest"}, True)),
        ("endingTimestamp", "1767225600000", "stop", Bound(AT)),
        ("endingOffsetsByTimestamp", '{"0": "2026-01-01T00:00:00Z"}', "stop", Bound(None, {0: AT})),
        ("minPartitions", "7", "tasks_min", 7),
        ("maxRecordsPerPartition", "10", "task_messages_max", 10),
        ("failOnDataLoss", "False", "fail_on_data_loss", False),
        ("delegationTokens", "false", "delegation_tokens", False),
        (
            "startingGroup",
            "a group, of any characters/",
            "start_group",
            "a group, of any characters/",
        ),
        ("includeHeaders", "True", "include_headers", True),
    ],
)
def test_options_of_a_batch_read(name: str, text: str, field: str, value: Any) -> None:
    assert getattr(batch(**{name: text}), field) == value
    assert getattr(batch(**{name.lower(): text}), field) == value


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("startingOffsets", "latest", "start", Bound("latest")),
        ("startingOffsets", "Earliest", "start", Bound("earliest")),  # As for Kafka's source.
        ("startingOffsets", '{"0": -1}', "start", Bound(None, {0: "latest"}, True)),
        ("maxOffsetsPerTrigger", "100", "trigger_messages_max", 100),
        ("minOffsetsPerTrigger", "100", "trigger_messages_min", 100),
        ("maxTriggerDelay", "90s", "trigger_delay_ms_max", 90_000),
        ("maxTriggerDelay", "250", "trigger_delay_ms_max", 250),
        ("maxTriggerDelay", "2h", "trigger_delay_ms_max", 7_200_000),
        ("rangesOnly", "true", "ranges_only", True),
        ("startingGroup", "billing", "start", Bound("earliest")),
        ("commitGroup", "billing", "commit_group", "billing"),
        ("includeHeaders", "true", "include_headers", True),
    ],
)
def test_options_of_a_stream(name: str, text: str, field: str, value: Any) -> None:
    assert getattr(stream(**{name: text}), field) == value


@pytest.mark.parametrize(
    ("given", "closest"),
    [
        ("que", "queue"),
        ("startingOffset", "startingOffsets"),
        ("subscribePatern", "subscribePattern"),
        ("failOnDataloss_", "failOnDataLoss"),
    ],
)
def test_an_unknown_option_names_the_closest(given: str, closest: str) -> None:
    with pytest.raises(InvalidInputError, match="unknown option") as caught:
        batch(**{given: "1"})
    assert caught.value.closest == closest


@pytest.mark.parametrize("given", ["kafka.bootstrap.servers", "kafka.group.id", "groupIdPrefix"])
def test_an_option_that_only_kafka_has_says_what_is_there_instead(given: str) -> None:
    with pytest.raises(InvalidInputError, match="unknown option") as caught:
        batch(**{given: "true"})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "text", "right"),
    [
        ("queue", "", "the name of a queue"),
        ("subscribe", "a,,b", "1 to 255 bytes"),
        ("subscribePattern", "(", "regular expression"),
        ("assign", "a", r"\[0, 1, 2\] or 0-2,5"),
        ("assign", "3-1", r"\[0, 1, 2\] or 0-2,5"),
        ("startingOffsets", "newest", "earliest, latest, a MessageID"),
        ("startingOffsets", '{"0": -3}', "-2 is earliest"),
        ("startingOffsets", '{"a":' * 100_000, "earliest, latest, a MessageID"),
        ("startingOffsets", '{"%s": -1}' % ("9" * 5_000), "earliest, latest, a MessageID"),
        (
            "startingOffsets",
            "5",
            "not a number of messages: give one such as 1767225600000-0, or give a time",
        ),
        ("startingOffsets", '{"0": 0}', "not a number of messages"),
        ("startingOffsets", '{"0": "23000000000"}', "not a number of messages"),
        ("endingOffsets", "5", "not a number of messages"),
        ("startingOffsets", '{"0": 1.5}', "earliest, latest, a MessageID"),
        ("startingGroup", "", "1 to 200 characters"),
        ("startingGroup", "g" * 201, "1 to 200 characters"),
        ("startingOffsets", '{"a": 1}', "JSON with one for each"),
        ("startingOffsets", "{", "JSON with one for each"),
        ("startingOffsets", "{}", "JSON with one for each"),
        ("startingOffsets", "latest", "can't have latest"),
        ("startingOffsets", '{"0": -1}', "can't have latest"),
        ("endingOffsets", "earliest", "can't have earliest"),
        ("startingTimestamp", "yesterday", "ISO 8601"),
        ("startingTimestamp", "2026-01-01T00:00:00", "with a time zone"),
        ("startingOffsetsByTimestamp", "[1]", "times by partition"),
        ("minPartitions", "0", "whole number in its range .*low=1"),
        ("failOnDataLoss", "no", "true or false"),
    ],
)
def test_a_wrong_value_says_what_is_right_and_names_the_option(
    name: str, text: str, right: str
) -> None:
    given = {"queue": "q", **{name: text}}
    with pytest.raises(HQueueError, match=right) as caught:
        ReadOptions.of(given, "batch")
    assert caught.value.option == name


def test_a_duration_that_can_not_be_read_says_how_one_is_written() -> None:
    with pytest.raises(InvalidInputError, match="500ms, 30s, 15m"):
        stream(maxTriggerDelay="soon")


def test_two_options_that_say_the_same_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="give one"):
        batch(subscribe="a", subscribePattern="b")
    with pytest.raises(InvalidInputError, match="give one"):
        batch(startingOffsets="earliest", startingTimestamp="1")


def test_more_at_least_than_at_most_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="must not be greater than"):
        stream(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="9")


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_an_option_of_streams_is_refused_in_batch(name: str) -> None:
    with pytest.raises(InvalidInputError, match="only for a stream"):
        batch(**{name: "1"})


def test_to_commit_in_batch_there_is_another_way() -> None:
    with pytest.raises(InvalidInputError, match="only for a stream") as caught:
        batch(commitGroup="billing")
    assert "read_group" in caught.value.hint


def test_a_topic_s_ranges_have_no_offsets_of_a_group() -> None:
    with pytest.raises(InvalidInputError, match="leave out topicRanges or startingGroup"):
        batch(subscribe="a", topicRanges="true", startingGroup="billing")


def test_an_option_of_batch_reads_is_refused_in_a_stream() -> None:
    with pytest.raises(InvalidInputError, match="only for a batch"):
        stream(endingOffsets="latest")


def test_settings_of_the_connection_are_options_and_checked() -> None:
    options = batch(**{"hqueue.gateways": "far:1/2", "hqueue.request_timeout_ms": "700"})
    assert str(options.settings.gateways[0]) == "far:1/2"
    assert options.settings.request_timeout_ms == 700
    with pytest.raises(SettingsError) as caught:
        batch(**{"hqueue.gateway": "far"})
    assert caught.value.closest == "gateways"


def test_without_a_queue_nothing_is_read() -> None:
    with pytest.raises(InvalidInputError, match="queue is missing"):
        ReadOptions.of({}, "batch")
    assert ReadOptions.of({"path": "events"}, "batch").queue == "events"


def test_offsets_by_partition_must_name_all_that_are_read() -> None:
    bound = batch(startingOffsets='{"0": -2}').start
    with pytest.raises(InvalidInputError, match="every partition"):
        bound.of(1)


def test_a_datetime_in_a_filter_is_utc() -> None:
    assert AT.datetime == datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
