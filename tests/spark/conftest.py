"""One Spark for all of these tests, on the standalone server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

import hqueue
from hqueue import local

OWN_CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this version of PySpark can't do: `make test-spark` runs older ones."""
    later = [item for item in items if any(map(_is_later, item.iter_markers("pyspark")))]
    if later:
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if item not in later]


def _is_later(marker: pytest.Mark) -> bool:
    wanted, there = (
        [int(n) for n in v.split(".")[:2]] for v in (marker.args[0], pyspark.__version__)
    )
    return wanted > there


@pytest.fixture(scope="session")
def spark_environment(server_environment: dict[str, str]) -> Iterator[None]:
    """The JVM that PySpark starts, and all that it starts, finds the server as a user's would."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in server_environment.items():
            if name.startswith(("HQUEUE_", "SPARK_")):
                patched.setenv(name, value)
        patched.setenv("PYSPARK_PYTHON", sys.executable)
        patched.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        yield


@pytest.fixture(scope="session")
def spark(spark_environment: None) -> Iterator[SparkSession]:
    """The session: two cores of this machine, and four tries of a task."""
    builder = SparkSession.builder.master("local[2,4]").appName("hqueue-tests")
    session = builder.config(map=OWN_CONFIGURATION).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connection(server: local.LocalServer) -> dict[str, str]:
    """The options with which Spark reaches the standalone server."""
    gateways = ",".join(f"{g.host}:{g.thrift1_port}/{g.thrift2_port}" for g in server.gateways)
    return {"hqueue.gateways": gateways, "hqueue.zookeeper": server.zookeeper}


@pytest.fixture
def load(spark: SparkSession) -> Callable[..., DataFrame]:
    """Reads a queue through the data source, in batch."""

    def load_queue(queue: hqueue.Queue, **options: object) -> DataFrame:
        reader = spark.read.format("hqueue").option("queue", queue.name)
        for name, value in options.items():
            reader = reader.option(name, value)  # type: ignore[arg-type]
        return reader.load()

    return load_queue
