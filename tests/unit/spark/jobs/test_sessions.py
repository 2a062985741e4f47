"""How a session of Spark begins."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JError
from pyspark import java_gateway
from pyspark.sql import SparkSession

from pyspark_hqueue.jobs import sessions
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


def test_an_interrupt_while_spark_starts_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Interrupted:
        socket = None

        def send_command(self, _: str) -> str:
            raise KeyboardInterrupt

    class Client(GatewayClient):
        def _get_connection(self) -> Interrupted:
            return Interrupted()

    def start(_: object) -> object:
        logging.getLogger().error("another error")
        return Client().send_command("c")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", start)
    with pytest.raises(KeyboardInterrupt), spark_session("test"):
        pass
    assert [record.message for record in caplog.records] == ["another error"]


def test_an_interrupt_while_spark_starts_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    launcher = tmp_path / "bin" / "spark-submit"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\nexec sleep 60\n")
    launcher.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(java_gateway, "Popen", Started)
    monkeypatch.setattr(java_gateway.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt), spark_session("test"):
        pass
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_a_java_process_that_ended_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise Py4JError("An error occurred while calling o1.stop")

    def use(process: subprocess.Popen[bytes]) -> None:
        gateway = SimpleNamespace(proc=process)
        session = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway), stop=stop)
        monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: session)
        with spark_session("test"):
            raise Py4JError("An error occurred while calling o1.sc")

    for name in ("check_tasks", "check_data_source"):
        monkeypatch.setattr(sessions, name, lambda _: None)
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(Py4JError):
            use(process)
        process.kill()
        with pytest.raises(JobError, match="Java process has ended"):
            use(process)
