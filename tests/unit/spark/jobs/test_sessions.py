"""How a session of Spark begins."""

from __future__ import annotations

import sys

import pytest

from pyspark_hqueue.jobs.failures import JobError
from pyspark_hqueue.jobs.sessions import spark_session


def test_a_spark_that_does_not_start_is_one_error_that_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JobError, match="Spark did not start") as caught, spark_session("test"):
        pass
    assert "It needs Java 17" in str(caught.value)
