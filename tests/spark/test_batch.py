"""Reading in batch, through the data source."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import hqueue
from hqueue import Message, MessageID, local
from tests.support.past import DAY_MS, put_in_the_past
from tests.support.proxy import Proxies
from tests.support.raw import RawTables
from tests.support.unreadable import BAD, put_unreadable

from .queries import put

MakeQueue = Callable[..., hqueue.Queue]
Load = Callable[..., DataFrame]


def values(frame: DataFrame) -> list[str]:
    rows = frame.select("partition", "id", "value").collect()
    return [bytes(row.value).decode() for row in sorted(rows)]


def plan(frame: DataFrame) -> None:
    """Let Spark plan the tasks of the frame's next `collect`."""
    frame._jdf.queryExecution().toRdd().getNumPartitions()


def test_a_row_has_the_parts_of_the_messages_id_its_topic_and_its_value(
    make_queue: MakeQueue, load: Load
) -> None:
    queue = make_queue(2)
    written = [queue.put(Message("a", b"one"), partition=1)]
    written += queue.put([Message("a", b""), Message("ü", b"\xff")], partition=0)
    frame = load(queue)
    assert frame.schema.simpleString() == (
        "struct<partition:int,timestamp:timestamp,sequence:smallint,id:bigint,topic:string,"
        "value:binary,key:binary>"
    )
    assert [field.name for field in frame.schema if field.nullable] == ["key"]
    rows = frame.orderBy("partition", "id").collect()
    assert [(r.partition, r.topic, bytes(r.value)) for r in rows] == [
        (0, "a", b""), (0, "ü", b"\xff"), (1, "a", b"one"),
    ]  # fmt: skip
    for row, id_ in zip(rows, [*written[1:], written[0]], strict=True):
        assert (row.id, row.sequence) == (int(id_), id_.sequence)
        aware = row.timestamp.astimezone(datetime.timezone.utc)
        assert aware == id_.datetime


def test_every_message_comes_once_whatever_the_batches_and_tasks(
    make_queue: MakeQueue, load: Load
) -> None:
    queue = make_queue(3)
    for partition, counts in enumerate([(1, 500, 1, 63, 64), (1_000,), ()]):
        first = 0
        for count in counts:
            put(queue, partition, first, count, topic="ab"[first % 2])
            first += count
    expected = [f"{p}:{n}" for p, number in ((0, 629), (1, 1_000)) for n in range(number)]
    for options in ({}, {"minPartitions": 7}, {"maxRecordsPerPartition": 100}):
        assert values(load(queue, **options)) == expected


def test_tasks_carry_equal_numbers_of_messages(make_queue: MakeQueue, load: Load) -> None:
    queue = make_queue(4)
    for partition, number in enumerate([50, 3_000, 0, 950]):
        for first in range(0, number, 100):
            put(queue, partition, first, min(100, number - first))
    counted = load(queue, minPartitions=8).groupBy(F.spark_partition_id()).count().collect()
    assert [row["count"] for row in counted] == [500] * 8


def test_many_small_partitions_are_one_task(make_queue: MakeQueue, load: Load) -> None:
    queue = make_queue(40)
    for partition in range(40):
        put(queue, partition, 0, 3)
    frame = load(queue)
    assert frame.rdd.getNumPartitions() == 1
    assert frame.count() == 120
    assert load(queue, maxRecordsPerPartition=60).rdd.getNumPartitions() == 2


def test_an_empty_queue_has_no_rows(make_queue: MakeQueue, load: Load) -> None:
    assert load(make_queue(2)).collect() == []


def test_a_read_is_a_snapshot_of_the_time_of_planning(make_queue: MakeQueue, load: Load) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 10)
    frame = load(queue)
    plan(frame)
    put(queue, 0, 10, 10)
    assert len(frame.collect()) == 10
    assert load(queue).count() == 20


def test_topics_partitions_and_offsets_choose_what_is_read(
    make_queue: MakeQueue, load: Load
) -> None:
    queue = make_queue(2)
    ids = {}
    for partition in range(2):
        for n, topic in enumerate(["click", "view", "clock"]):
            ids[partition, topic] = queue.put(Message(topic, b"%d" % n), partition=partition)
    zero = ids[0, "view"]
    for options, expected in (
        ({"subscribe": "view,click"}, ["0", "1", "0", "1"]),
        ({"subscribePattern": "cl.*"}, ["0", "2", "0", "2"]),
        ({"subscribePattern": "cl"}, []),
        ({"assign": "[1]", "subscribe": "view"}, ["1"]),
        ({"startingOffsets": json.dumps({"0": int(zero), "1": -2})}, ["1", "2", "0", "1", "2"]),
        ({"startingOffsets": str(zero), "assign": "0"}, ["1", "2"]),
        ({"endingOffsets": json.dumps({"0": str(zero), "1": -1})}, ["0", "0", "1", "2"]),
        ({"startingTimestamp": zero.timestamp, "assign": "0", "subscribe": "view"}, ["1"]),
        ({"endingTimestamp": zero.timestamp + 1, "assign": "0", "subscribe": "view"}, ["1"]),
        ({"startingTimestamp": zero.timestamp + 3_600_000}, []),
        ({"startingOffsetsByTimestamp": json.dumps({"0": 0}), "assign": "0"}, ["0", "1", "2"]),
        ({"endingOffsetsByTimestamp": json.dumps({"0": 0}), "assign": "0"}, []),
    ):
        assert values(load(queue, **options)) == expected, options


def test_a_sql_view_reads_a_queue(make_queue: MakeQueue, spark: SparkSession) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 5)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW events USING hqueue OPTIONS (queue '{queue.name}')"
    )
    (row,) = spark.sql("SELECT count(*) n, sum(length(value)) bytes FROM events").collect()
    assert (row.n, row.bytes) == (5, 15)


@pytest.fixture
def proxies(server: local.LocalServer) -> Iterator[Proxies]:
    with Proxies(server) as between:
        yield between


def test_settings_given_as_options_reach_the_executors(
    make_queue: MakeQueue, load: Load, proxies: Proxies
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 100)
    gateways = ",".join(map(str, proxies.settings().gateways))
    assert load(queue, **{"hqueue.gateways": gateways}).count() == 100
    assert sum(proxy.calls["scannerGetList"] for proxy in proxies.thrift1) > 0


def test_only_the_topics_that_are_asked_for_leave_hbase(
    make_queue: MakeQueue, load: Load, proxies: Proxies
) -> None:
    queue = make_queue(1)
    for n in range(20):
        queue.put([Message("large", bytes(100_000)), Message("small", b"%d" % n)])
    gateways = ",".join(map(str, proxies.settings().gateways))
    for options in ({"subscribe": "small"}, {"subscribePattern": "sm.*"}):
        proxies.reset()
        frame = load(queue, **{"hqueue.gateways": gateways, **options})
        assert values(frame) == [str(n) for n in range(20)]
        assert proxies.answer_bytes < 100_000


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("partition = 1", ["1:0", "1:1", "1:2"]),
        ("partition in (0, 5)", ["0:0", "0:1", "0:2"]),
        ("partition > 1", ["2:0", "2:1", "2:2"]),
        ("topic = 'b'", ["0:2", "1:2", "2:2"]),
        ("topic = 'b' and partition < 1", ["0:2"]),
        ("topic = 'b' and topic = 'a'", []),
    ],
)
def test_filters_give_the_same_rows_pushed_or_not(
    make_queue: MakeQueue, load: Load, spark: SparkSession, condition: str, expected: list[str]
) -> None:
    queue = make_queue(3)
    for partition in range(3):
        put(queue, partition, 0, 2, "a")
        put(queue, partition, 2, 1, "b")
    assert values(load(queue).where(condition)) == expected
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        assert values(load(queue).where(condition)) == expected
        assert values(load(queue)) == [f"{p}:{n}" for p in range(3) for n in range(3)]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.pyspark("4.1")
def test_pushed_filters_reach_the_planner(
    make_queue: MakeQueue, load: Load, spark: SparkSession, proxies: Proxies
) -> None:
    queue = make_queue(4)
    ids = [queue.put(Message("t", bytes(50_000)), partition=0) for _ in range(20)]
    put(queue, 1, 0, 1)
    gateways = {"hqueue.gateways": ",".join(map(str, proxies.settings().gateways))}
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        at = ids[10].datetime.isoformat()
        for condition in (
            "partition = 1",
            "topic = 'other'",
            f"id > {int(ids[18])}",
            f"id = {int(ids[0])}",
            f"timestamp < '{at}' and timestamp >= '{at}'",
        ):
            proxies.reset()
            load(queue, **gateways).where(condition).collect()
            assert proxies.answer_bytes < 200_000, condition
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.pyspark("4.1")
def test_pushed_filters_apply_in_full_and_the_plan_shows_them(
    make_queue: MakeQueue,
    load: Load,
    spark: SparkSession,
    raw: RawTables,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue = make_queue(1)
    first, second, third = put_in_the_past(raw, queue, [30_000, 20_000, 10_000])
    middle, at = second + 1, MessageID.from_int(second).datetime
    before, after = (at + n * datetime.timedelta(microseconds=1) for n in (-1, 1))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for condition, pushed, rows in (
            (f"id > {middle}", "GreaterThan", 4),
            (f"id <= {middle}", "LessThanOrEqual", 5),
            (f"timestamp > timestamp'{before}'", "GreaterThan", 6),
            (f"timestamp < timestamp'{at}'", "LessThan", 3),
            (f"timestamp < timestamp'{after}'", "LessThan", 6),
            (f"timestamp = timestamp'{after}'", "EqualTo", 0),
            (f"id in ({first}, {third + 2})", "", 2),
        ):
            frame = load(queue).where(condition)
            assert frame.count() == rows, condition
            capsys.readouterr()
            frame.explain("formatted")
            shown = capsys.readouterr().out
            assert ("Filter (" in shown) == (not pushed)
            if pushed:
                assert f"PushedFilters: [{pushed}(" in shown
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_what_expired_is_no_part_of_a_read_from_the_earliest(
    make_queue: MakeQueue, load: Load, raw: RawTables
) -> None:
    queue = make_queue(ttl="1d")
    put_in_the_past(raw, queue, [3 * DAY_MS, 2 * DAY_MS, DAY_MS // 2, 1_000])
    assert values(load(queue, minPartitions=2)) == ["2"] * 3 + ["3"] * 3


def test_a_read_from_an_id_that_expired_fails_with_the_number_lost_or_goes_on(
    make_queue: MakeQueue, load: Load, raw: RawTables
) -> None:
    queue = make_queue(ttl="1d")
    bases = put_in_the_past(raw, queue, [3 * DAY_MS, 2 * DAY_MS, DAY_MS // 2, 1_000])
    with pytest.raises(Exception, match=r"expired before they were read.*lost=5"):
        load(queue, startingOffsets=bases[0] + 1).collect()
    rows = values(load(queue, startingOffsets=bases[0] + 1, failOnDataLoss=False))
    assert rows == ["2"] * 3 + ["3"] * 3


@pytest.mark.thorough("a table is altered, and Spark tries four times; `test_stream` has the like")
def test_what_expires_between_planning_and_reading_is_a_loss_where_it_was_named(
    client: hqueue.Client, make_queue: MakeQueue, load: Load, raw: RawTables
) -> None:
    queue = make_queue(ttl=None)
    bases = put_in_the_past(raw, queue, [3 * DAY_MS, 2 * DAY_MS, DAY_MS // 2, 1_000])
    named = {"startingOffsets": bases[0]}
    strict, lenient = load(queue, **named), load(queue, failOnDataLoss=False, **named)
    earliest = load(queue)
    for frame in (strict, lenient, earliest):
        plan(frame)
    client.alter_queue(queue.name, ttl="1d")
    with pytest.raises(PySparkException, match=r"expired before they were read.*lost=6"):
        strict.collect()
    for frame in (lenient, earliest):
        assert [bytes(row.value) for row in frame.collect()] == [b"2"] * 3 + [b"3"] * 3


@pytest.mark.thorough("Spark tries again what is gone for 40 s; `test_stream` has the like")
def test_a_queue_truncated_between_planning_and_reading_is_a_loss(
    client: hqueue.Client, make_queue: MakeQueue, load: Load
) -> None:
    queue = make_queue(1)
    put(queue, 0, 0, 10)
    options = {"hqueue.operation_timeout_ms": 6_000}
    strict, lenient = load(queue, **options), load(queue, failOnDataLoss=False, **options)
    for frame in (strict, lenient):
        plan(frame)
    client.truncate_queue(queue.name)
    with pytest.raises(Exception, match=r"truncated.*lost=10"):
        strict.collect()
    assert lenient.collect() == []


def test_a_queue_deleted_between_planning_and_reading_is_named(
    client: hqueue.Client, queue_name: str, load: Load
) -> None:
    queue = client.create_queue(queue_name, partitions=1)
    put(queue, 0, 0, 10)
    frame = load(queue)
    plan(frame)
    client.disable_queue(queue.name)
    client.delete_queue(queue.name)
    with pytest.raises(Exception, match=f"QueueNotFoundError: .*{queue.name}"):
        frame.collect()


def test_what_can_t_be_read_ends_a_job_and_is_passed_by_once_that_is_decided(
    make_queue: MakeQueue, load: Load
) -> None:
    queue = make_queue(1)
    queue.put(Message("t", b"1"), partition=0)
    row = put_unreadable(queue, [Message("t", b"lost", None, [(BAD, b"")]), Message("u", b"2")])
    queue.put(Message("t", b"3"), partition=0)
    frame = load(queue)
    with pytest.raises(PySparkException, match=row):
        frame.collect()
    queue.skipped_batches.add(row)
    assert values(frame) == ["1", "2", "3"]
    assert load(queue, includeHeaders="true").count() == 3
