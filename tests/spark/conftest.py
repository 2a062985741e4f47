"""A Spark session for the whole test session, and what its queries need to reach the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from hqueue import local


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connection(server: local.LocalServer) -> dict[str, str]:
    """The options with which Spark reaches the standalone server."""
    gateways = ",".join(f"{g.host}:{g.thrift1_port}/{g.thrift2_port}" for g in server.gateways)
    return {"hqueue.gateways": gateways, "hqueue.zookeeper": server.zookeeper}
