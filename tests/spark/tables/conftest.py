"""A Spark with the jars of both table formats, and queues in memory, behind gateways.

What HBase has to do with archives is shown in `tests/spark/test_pipelines.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import hqueue
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair
from tests.support.memory.zookeeper import MemoryZooKeeper

from ..conftest import OWN_CONFIGURATION
from ..test_pipelines import Make
from .archiving import Archiving, next_name
from .formats import FORMATS, session_settings


@pytest.fixture(scope="package")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tables are that have a name."""
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="package")
def connection(tables: Path) -> Iterator[dict[str, str]]:
    """The options with which Spark reaches the queues. Commands find them in the environment."""
    with (
        contextlib.closing(GatewayPair(MemoryCluster())) as pair,
        MemoryZooKeeper() as zookeeper,
        pytest.MonkeyPatch.context() as patched,
    ):
        found = {
            "hqueue.gateways": ",".join(map(str, pair.gateways)),
            "hqueue.zookeeper": f"127.0.0.1:{zookeeper.port}",
        }
        for name, value in found.items():
            patched.setenv(name.replace(".", "_").upper(), value)
        patched.setenv("HQUEUE_CONFIG", os.devnull)
        patched.setenv("PYSPARK_PYTHON", sys.executable)
        patched.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patched.setenv("SPARK_LOCAL_DIRS", str(tables / "spark"))
        yield found


@pytest.fixture(scope="package")
def client(connection: dict[str, str]) -> Iterator[hqueue.Client]:
    with hqueue.connect() as connected:
        yield connected


@pytest.fixture
def make_queue(client: hqueue.Client) -> Make:
    """Creates queues."""
    return lambda partitions: client.create_queue(next_name("q"), partitions=partitions)


@pytest.fixture(scope="package")
def spark(connection: dict[str, str], tables: Path) -> Iterator[SparkSession]:
    """A session with the jars and the catalogs of both formats."""
    builder = SparkSession.builder.master("local[2,4]").appName("hqueue-tables")
    settings = {**OWN_CONFIGURATION, **session_settings(tables)}
    session = builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(params=FORMATS)
def output_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def archiving(
    spark: SparkSession,
    connection: dict[str, str],
    make_queue: Make,
    output_format: str,
    tmp_path: Path,
) -> Archiving:
    return Archiving(spark, make_queue(2), output_format, tmp_path, connection)
