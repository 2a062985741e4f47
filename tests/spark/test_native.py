"""Spark without gateways: batch, stream and sink go straight to the region servers, which ZooKeeper
names, or the master. The gateway that is named answers nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import hqueue
from hqueue import local
from tests.support.registries import NOWHERE, master_of

from .queries import Stream, put

MakeQueue = Callable[..., hqueue.Queue]


@pytest.fixture
def client(server: local.LocalServer) -> Iterator[hqueue.Client]:
    with hqueue.connect(hqueue.Settings(zookeeper=server.zookeeper)) as connected:
        assert connected.settings.hbase == "native"
        yield connected


@pytest.fixture(params=["zookeeper", "masters"])
def native(request: pytest.FixtureRequest, server: local.LocalServer) -> dict[str, str]:
    """The options with which Spark reaches the server."""
    nobody = {"hqueue.gateways": "127.0.0.1:1/1"}
    if request.param == "masters":
        # Nobody is notified of appends then: for that there must be ZooKeeper.
        return {
            **nobody,
            "hqueue.hbase_masters": str(master_of(server)),
            "hqueue.zookeeper": str(NOWHERE),
        }
    return {**nobody, "hqueue.hbase": "native", "hqueue.zookeeper": server.zookeeper}


def test_batch_sink_and_stream_need_no_gateway(
    spark: SparkSession, native: dict[str, str], make_queue: MakeQueue, tmp_path: Path
) -> None:
    source, target = make_queue(2), make_queue(2)
    put(source, 0, 0, 10)
    put(source, 1, 0, 5)
    expected = sorted([*(f"0:{n}" for n in range(10)), *(f"1:{n}" for n in range(5))])

    frame = spark.read.format("hqueue").options(**native, queue=source.name).load()
    assert sorted(bytes(row.value).decode() for row in frame.collect()) == expected

    frame.write.format("hqueue").mode("append").options(**native, queue=target.name).save()
    assert sorted(message.value.decode() for message in target.scan()) == expected

    reading = Stream(spark, target, tmp_path, **native, startingOffsets="earliest")
    with reading.running():
        assert reading.await_values(15) == expected
        put(target, 0, 10, 5)
        assert len(reading.await_values(20)) == 20
