"""The shell reads the lines of Alibaba's HQueue as they stand there, and the command line's own."""

from __future__ import annotations

import pytest

from hqueue.cli.shell.syntax import parse_line
from hqueue.errors import InvalidInputError

# Verbatim from the description of Alibaba's HQueue, prompts and typographic quotes included.
ALIBABAS_EXAMPLES = [
    (
        "hqueue> create ‘q1′, 32, 86400",
        ["create", "--partitions=32", "--ttl=86400", "--", "q1"],
    ),
    (
        "hqueue> create ‘q1′, 32, 86400, {‘hbase.hqueue.partitionsPerRegion’ => ’4′, "
        "‘hbase.hstore.compaction.min’ => ’16′, ‘hbase.hstore.compaction.max’ => ’32′}",
        [
            "create",
            "--partitions=32",
            "--ttl=86400",
            "--attribute=hbase.hqueue.partitionsPerRegion=4",
            "--attribute=hbase.hstore.compaction.min=16",
            "--attribute=hbase.hstore.compaction.max=32",
            "--",
            "q1",
        ],
    ),
    (
        "hqueue(main):013:0> truncate_queue 'replication_dev_2_test_queue'",
        ["truncate", "replication_dev_2_test_queue"],
    ),
    (
        "add_subscriber 'replication_dev_2_test_queue', 'subscriber_1'",
        ["add-subscriber", "--", "replication_dev_2_test_queue", "subscriber_1"],
    ),
    (
        "hqueue(main):040:0> delete_subscriber 'replication_dev_2_test_queue', 'subscriber_1'",
        ["delete-subscriber", "--", "replication_dev_2_test_queue", "subscriber_1"],
    ),
]


@pytest.mark.parametrize(("line", "expected"), ALIBABAS_EXAMPLES)
def test_alibabas_examples_are_read_as_they_stand_there(line: str, expected: list[str]) -> None:
    assert parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("create 'q1', 3, 86400", ["create", "--partitions=3", "--ttl=86400", "--", "q1"]),
        ('create "q1" ,3 , 1d', ["create", "--partitions=3", "--ttl=1d", "--", "q1"]),
        ("create q1, 3, 86400, {}", ["create", "--partitions=3", "--ttl=86400", "--", "q1"]),
        (
            "create 'q1', 3, 86400, {compression => GZ}",
            ["create", "--partitions=3", "--ttl=86400", "--attribute=compression=GZ", "--", "q1"],
        ),
        ("disable ‘q1′", ["disable", "--", "q1"]),
        ("disable “q1”", ["disable", "--", "q1"]),
        ("delete 'q1'", ["delete", "q1"]),
        ("alter 'q1', 172800", ["alter", "--ttl=172800", "--", "q1"]),
        ("put 'q1', 'a b', '-1', ''", ["put", "--topic=a b", "--", "q1", "-1", ""]),
        ("put 'q1', 't', 'it’s, so'", ["put", "--topic=t", "--", "q1", "it’s, so"]),
        (
            "scan 'q1', {'start' => '-10m', 'merge_sorted' => 'x'}",
            ["scan", "--start=-10m", "--merge-sorted=x", "--", "q1"],
        ),
        ("help", ["help"]),
        ("help create", ["help", "create"]),
    ],
)
def test_the_toolkit_syntax(line: str, expected: list[str]) -> None:
    assert parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("create q1 --partitions 3 --ttl 1d", ["create", "q1", "--partitions", "3", "--ttl", "1d"]),
        ("hqueue create q1 -p 3", ["create", "q1", "-p", "3"]),
        ("put q1 --topic t 'a, b' {x}", ["put", "q1", "--topic", "t", "a, b", "{x}"]),
        ("put q1 -t t a,b", ["put", "q1", "-t", "t", "a,b"]),
        ("put q1 -t t #1", ["put", "q1", "-t", "t", "#1"]),
        ("  list  ", ["list"]),
        ("truncate_queue q1", ["truncate", "q1"]),
        ("", []),
        ("   ", []),
        ("# a comment, with 'quotes", []),
        ("hqueue>", []),
    ],
)
def test_the_plain_syntax(line: str, expected: list[str]) -> None:
    assert parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("create 'q1', 3, 86400, {'a' => }", 32),
        ("create 'q1', 3, 86400, {'a' 1}", 29),
        ("create 'q1', 3, 86400, {'a' => 1", 33),
        ("create 'q1', 3 86400", 16),
        ("create 'q1', 3,", 16),
        ("create ‘q1", 8),
    ],
)
def test_a_line_that_can_not_be_read_is_refused_with_the_place(line: str, column: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_line(line)
    assert caught.value.facts["column"] == column


@pytest.mark.parametrize("line", ["create 'q1', 3", "put 'q1', 't'", "disable 'q1", 'put q1 "'])
def test_missing_arguments_and_open_quotes_are_refused(line: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_line(line)
