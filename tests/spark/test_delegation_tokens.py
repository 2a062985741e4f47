"""Executors without tickets, on a standalone cluster: the driver alone can prove who it is."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue import Message, local
from tests.support.waiting import wait_for

from .standalone import SparkCluster

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spark,
    pytest.mark.thorough(
        "a standalone cluster of Spark beside a server that starts again, a minute"
    ),
]

HERE = Path(__file__).parent
LIFETIME_S = 20
MESSAGES = 200
HOSTS = ("127.0.0.1", "127.0.0.2")
OF_DRIVER = ("KRB5_CONFIG", "KRB5CCNAME", "KRB5_CLIENT_KTNAME", "HADOOP_TOKEN_FILE_LOCATION")


@contextlib.contextmanager
def short_lived_tokens(server: local.LocalServer) -> Iterator[threading.Thread]:
    """Tokens that HBase gives from its next start on end soon; the thread that starts it."""
    path = server.home / "conf" / "master" / "hbase-site.xml"
    before = path.read_text("utf-8")
    lifetime = (
        "<property><name>hbase.auth.token.max.lifetime</name>"
        f"<value>{LIFETIME_S * 1000}</value></property></configuration>"
    )
    path.write_text(before.replace("</configuration>", lifetime), encoding="utf-8")
    restart = threading.Thread(target=server.restart, args=("master",), kwargs={"timeout_s": 120})
    restart.start()
    try:
        yield restart
    finally:
        restart.join()
        path.write_text(before, encoding="utf-8")


class Program:
    """The driver, which has the keytab."""

    def __init__(self, folder: Path, **given: object) -> None:
        self._log = (folder / "driver.log").open("wb")
        environ = {k: v for k, v in os.environ.items() if not k.startswith("HQUEUE_")}
        environ |= {
            "HQUEUE_CONFIG": os.devnull,
            "HQUEUE_LOCAL_HOME": str(folder / "nowhere"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(HERE / "recording"),
            "RECORDED_TOKENS": str(folder.parent / "recorded"),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        for name in OF_DRIVER:
            environ.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "programs" / "proven_by_tokens.py"), json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environ,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def step(self, name: str) -> Any:
        """What came of the next step."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, Path(self._log.name).read_text(errors="replace")[-5_000:]
        return json.loads(line)[name]

    def end(self) -> None:
        """Have it end its stream, and then itself."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


def connection_options(server: local.LocalServer) -> dict[str, str]:
    """The options by which a driver that has the keytab reaches the server."""
    settings = server.settings()
    names = (
        "zookeeper", "hbase_authentication", "hbase_principal", "kerberos_keytab",
        "kerberos_principal", "kerberos_config", "hbase_tls", "tls_ca", "tls_certificate",
    )  # fmt: skip
    own = {name: str(getattr(settings, name)) for name in names}
    # Each time another connection, which needs a token that is still good.
    return {f"hqueue.{name}": value for name, value in {**own, "connection_idle_ms": "1"}.items()}


def written(secret: bytes) -> set[bytes]:
    """How a secret may stand in a file: as it is, in hex, in base64 wherever it begins."""
    forms = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    for before in range(3):
        code = base64.b64encode(bytes(before) + secret)
        forms.add(code[(before * 8 + 5) // 6 : -4])
    return forms


def found_in(folder: Path, forms: set[bytes]) -> list[str]:
    """The files that have one of these in them."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            with contextlib.suppress(FileNotFoundError):  # Spark takes its own files away.
                data = path.read_bytes()
                found += [str(path) for form in forms if form in data]
    return found


def recorded(path: Path) -> list[tuple[int, bytes, bytes, int]]:
    """The tokens that were handed over: process, identifier, password, end."""
    lines = map(json.loads, path.read_text("utf-8").splitlines())
    return [(pid, bytes.fromhex(i), bytes.fromhex(p), ends) for pid, i, p, ends in lines]


def test_executors_without_tickets_read_stream_and_write_by_tokens_that_lie_nowhere(
    secure_server: local.LocalServer, tmp_path: Path
) -> None:
    folder = tmp_path / "spark"
    for name in ("events", "checkpoint", "local"):
        (folder / name).mkdir(parents=True)
    nothing = {"KRB5_CONFIG": os.devnull, "KRB5CCNAME": f"FILE:{tmp_path / 'no-tickets'}"}
    names = {part: f"{part}-{uuid.uuid4().hex[:8]}" for part in ("source", "copies", "written")}
    with (
        short_lived_tokens(secure_server) as restart,
        SparkCluster(folder, HOSTS, nothing) as cluster,
    ):
        restart.join()
        with (
            hqueue.connect(secure_server.settings()) as client,
            Program(
                folder,
                master=cluster.url,
                options=connection_options(secure_server),
                checkpoint=str(folder / "checkpoint"),
                events=str(folder / "events"),
                **{part: make(client, name) for part, name in names.items()},
            ) as program,
        ):
            assert program.step("streamed")
            assert program.step("read") == 2 * MESSAGES
            assert program.step("located") == 2 * MESSAGES
            assert program.step("written")
            assert count(client, names["written"]) == 5
            plans = "\n".join(program.step("plans"))
            assert "hqueue" in plans
            assert all("there is no ticket" in text for text in program.step("refused"))
            # The stream goes on beyond the end of its first token.
            reader, *_, ends_ms = recorded(tmp_path / "recorded")[0]
            wait_for(lambda: time.time() * 1000 > ends_ms + 1_000, "a token's end", timeout_s=60)
            client.queue(names["source"]).put([Message("t", b"later")] * MESSAGES, partition=0)
            total = 3 * MESSAGES
            wait_for(lambda: count(client, names["copies"]) == total, "a copy of all", timeout_s=60)
            tokens = recorded(tmp_path / "recorded")
            assert [pid for pid, *_ in tokens].count(reader) >= 2, "it got another one"
            for number in range(len(HOSTS)):
                assert [*(folder / f"worker-{number}").rglob("stderr")], "it had an executor"
            assert "py4j.clientserver:Command to send" in (folder / "driver.log").read_text()
            check_nothing_is_written(tmp_path, tokens, plans)
            program.end()
            assert program.step("stream") is None
    check_nothing_is_written(tmp_path, recorded(tmp_path / "recorded"), plans)


def make(client: hqueue.Client, name: str) -> str:
    """A queue, with messages if it is the source; its name."""
    queue = client.create_queue(name, partitions=2)
    if name.startswith("source"):
        for partition in range(2):
            queue.put([Message("t", b"%d" % n) for n in range(MESSAGES)], partition=partition)
    return name


def count(client: hqueue.Client, name: str) -> int:
    return sum(each.end_ordinal for each in client.queue(name).offsets())


def check_nothing_is_written(
    folder: Path, tokens: list[tuple[int, bytes, bytes, int]], plans: str
) -> None:
    """No token lies in any file but the one by which the test knows them, nor in a plan."""
    forms = {form for _, *secrets, _ in tokens for secret in secrets for form in written(secret)}
    assert {*found_in(folder, forms)} == {str(folder / "recorded")}
    assert not any(form in plans.encode() for form in forms)
