"""Reading where the data is: each task on the host of the region that it reads from.

A data source written in Python can't tell Spark where its tasks should run. An RDD can: so what is
read is laid into one, a task's ranges an element, and Arrow batches are made of it where it is.
"""

from __future__ import annotations

import collections
import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType, StructField, StructType

from hqueue import InvalidInputError, Queue
from hqueue.runtime.logs import Log
from pyspark_hqueue.reading.clients import client_of, task_token
from pyspark_hqueue.reading.hosts import names_of
from pyspark_hqueue.reading.plain_errors import plain_errors
from pyspark_hqueue.reading.plan import Range, Task, cut, pieces_of, position_of
from pyspark_hqueue.reading.plan_text import plan_text
from pyspark_hqueue.reading.py4j_logs import no_py4j_logs
from pyspark_hqueue.reading.pythons import check_data_source, check_tasks
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.reading.topic_ranges import planned

__all__ = ["foreach_batch", "frame_of", "has_jvm", "read", "texts_of", "wanted_columns"]

logger = Log(__name__)

_TASKS = StructType([StructField("ranges", BinaryType(), nullable=False)])


@plain_errors
def read(
    spark: SparkSession,
    queue: str,
    *,
    columns: Sequence[str] | None = None,
    **options: str | bool | float,
) -> DataFrame:
    """Read the messages that are in a queue now, by tasks on the hosts of the queue's regions.

    The frame is a snapshot: this call fixes the messages, and each use of the frame reads the same
    ones. Under Spark Connect it is the data source's frame, whose tasks run on any host.

    Args:
        spark: the session.
        queue: the queue's name.
        columns: the columns to read. None for all; ``headers`` only with the option
            ``includeHeaders``.
        options: the data source's batch options.

    Raises:
        InvalidInputError: an option is unknown or has a wrong value, or a column does not exist.
        SettingsError: the tasks use a different Python, in which HQueue is not installed.
    """
    given = {**texts_of(options), "queue": queue}
    if not has_jvm(spark):
        _say_once()
        frame = spark.read.format("hqueue").options(**given).load()
        return frame.select(*wanted_columns(spark, columns, frame.schema).names)
    parsed = ReadOptions.of(given, "batch")
    wanted = wanted_columns(spark, columns, parsed.columns)
    check_tasks(spark)
    ranges = planned(client_of(parsed.settings), parsed)
    return frame_of(spark, parsed, ranges, wanted)


@plain_errors
def foreach_batch(
    spark: SparkSession,
    queue: str,
    function: Callable[[DataFrame, int], None],
    *,
    columns: Sequence[str] | None = None,
    **options: str | bool | float,
) -> DataStreamWriter:
    """Stream a queue into a function. Tasks on the hosts of the queue's regions read the batches.

    It is like ``readStream … .writeStream.foreachBatch(function)``; under Spark Connect it is
    exactly that. Give the result a checkpoint and a trigger, and start it. The checkpoint fixes the
    ranges of a batch: a repeated batch has the same messages in the same tasks.

    Args:
        spark: the session.
        queue: the queue's name.
        function: called with the frame of each batch, and the batch's ID.
        columns: the columns to read, as for `read`.
        options: the data source's stream options.

    Raises:
        InvalidInputError: an option is unknown or has a wrong value, or a column does not exist.
        SettingsError: the tasks use a different Python, in which HQueue is not installed.
    """
    given = {**texts_of(options), "queue": queue}
    if not has_jvm(spark):
        _say_once()
        frame = spark.readStream.format("hqueue").options(**given).load()
        names = wanted_columns(spark, columns, frame.schema).names
        return frame.select(*names).writeStream.foreachBatch(function)
    parsed = ReadOptions.of(given, "stream")
    wanted = wanted_columns(spark, columns, parsed.columns)
    check_tasks(spark)
    check_data_source(spark)

    def located(ranges: DataFrame, batch_id: int) -> None:
        found = [Range(**row.asDict()) for row in ranges.collect()]
        # A sink may know what it has written by the task.
        function(frame_of(spark, parsed, found, wanted, fixed=True), batch_id)

    frame = spark.readStream.format("hqueue").options(**{**given, "rangesOnly": "true"}).load()
    return frame.writeStream.foreachBatch(located)


def texts_of(options: Mapping[str, str | bool | float]) -> dict[str, str]:
    """Options as Spark takes them: flags in lower case, settings with their prefix's dot."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def wanted_columns(
    spark: SparkSession, columns: Sequence[str] | None, there: StructType
) -> StructType:
    """These columns, by the names that the caller gives. Case does not matter unless the session is
    case sensitive.

    Raises:
        InvalidInputError: there is no such column.
    """
    exact = spark.conf.get("spark.sql.caseSensitive", "false") == "true"
    known = {field.name: field for field in there}
    chosen = []
    for name in there.names if columns is None else columns:
        field = known.get(name if exact else name.lower())
        if field is None:
            raise InvalidInputError("there is no such column", column=name, columns=there.names)
        chosen.append(StructField(name, field.dataType, field.nullable))
    return StructType(chosen)


def has_jvm(spark: SparkSession) -> bool:
    """Whether this is the driver, and not a client of Spark Connect."""
    return hasattr(spark, "_jsparkSession")


@functools.lru_cache(maxsize=1)
def _say_once() -> None:
    logger.warning(
        "Spark Connect can't place tasks by location: the queue is read through the data source "
        "instead"
    )


def frame_of(
    spark: SparkSession,
    options: ReadOptions,
    ranges: Sequence[Range],
    columns: StructType,
    *,
    fixed: bool = False,
) -> DataFrame:
    """The messages of some ranges, read by tasks on the hosts of their regions.

    Args:
        spark: the session.
        options: how they are read.
        ranges: what is read.
        columns: those that are made.
        fixed: whether the tasks must be the same each time, wherever regions are by then and
            however many cores there are; otherwise no task lies on two hosts.
    """
    client = client_of(options.settings)
    queue = client.queue(options.queue)
    hosts = {location.partition: location.host for location in client.locations(options.queue)}
    if fixed:
        tasks = cut(
            ranges, pieces_of(queue, ranges, options), functools.partial(position_of, queue)
        )
    else:
        tasks = _by_host(queue, options, ranges, hosts, spark.sparkContext.defaultParallelism)

    decode = _decoder(options, columns, plan_text(options, ranges, columns.names))
    token = task_token(options)
    located = [(task.proven_by(token), _host_of(task, hosts)) for task in tasks]
    return _placed(spark, located).mapInArrow(decode, columns)


def _decoder(
    options: ReadOptions, columns: StructType, name: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does. A Python without HQueue can load it, too, and says what it is.

    Args:
        options: how messages are read.
        columns: those that are made.
        name: what plans show.
    """
    given = pickle.dumps((options, columns))

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            from pyspark_hqueue.reading.decode import read_tasks  # noqa: PLC0415
        except ImportError as exc:
            import platform  # noqa: PLC0415
            import sys  # noqa: PLC0415

            sys.tracebacklimit = 0  # As `plain_errors` does.
            raise RuntimeError(
                f"the Python of a task, {sys.executable} on {platform.node()}, can't read a queue "
                f"({exc}): install HQueue with its extra spark there, or set PYSPARK_PYTHON to a "
                "Python that has it before the session begins"
            ) from None
        return read_tasks(given, batches)

    decode.__name__ = name
    return decode


def _by_host(
    queue: Queue,
    options: ReadOptions,
    ranges: Sequence[Range],
    hosts: Mapping[int, str],
    cores: int,
) -> list[Task]:
    """Tasks that each have partitions of one host only."""
    pieces = pieces_of(queue, ranges, options, cores)
    by_host: dict[str, list[Range]] = collections.defaultdict(list)
    for range_ in ranges:
        by_host[hosts[range_.partition]].append(range_)
    total = sum(range_.messages for range_ in ranges)
    tasks = []
    for there in by_host.values():
        share = sum(range_.messages for range_ in there)
        tasks += cut(
            there,
            max(1, round(pieces * share / max(1, total))),
            functools.partial(position_of, queue),
        )
    return tasks


def _host_of(task: Task, hosts: Mapping[int, str]) -> str:
    """The host that has the most of a task; any if it has nothing."""
    messages = collections.Counter[str]()
    for range_ in task.ranges:
        messages[hosts[range_.partition]] += range_.messages
    return max(messages, key=messages.__getitem__, default=hosts[0])


def _placed(spark: SparkSession, tasks: Sequence[tuple[Task, str]]) -> DataFrame:
    """A frame of one column with the tasks, each in a partition that prefers its host."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.jvm
    rows = jvm.java.util.ArrayList()
    hosts: dict[str, Any] = {}
    scala = jvm.scala.jdk.javaapi.CollectionConverters
    for task, host in tasks:
        if host not in hosts:
            names = jvm.java.util.ArrayList()
            for name in names_of(host):
                names.add(name)
            hosts[host] = scala.asScala(names).toSeq()
        values = gateway.new_array(jvm.java.lang.Object, 1)
        with no_py4j_logs():
            values[0] = bytearray(pickle.dumps((task.ranges, task.token)))
        rows.add(jvm.scala.Tuple2(jvm.org.apache.spark.sql.RowFactory.create(values), hosts[host]))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("org.apache.spark.sql.Row"))
    rdd = spark.sparkContext._jsc.sc().makeRDD(scala.asScala(rows).toSeq(), tag)
    schema = spark._jsparkSession.parseDataType(_TASKS.json())
    return DataFrame(spark._jsparkSession.createDataFrame(rdd, schema), spark)
