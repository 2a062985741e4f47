"""What tests run over: a cluster in memory, and real servers, each started once, when a test first
needs it, and stopped at the end. Tests keep apart by queue names of their own.

A test that takes a `client`, or makes queues, runs over both, unless it takes something that only
real servers have.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import hypothesis
import pytest

import hqueue
from hqueue import local
from hqueue.local.jars import HBASE
from hqueue.local.lifecycle import PROFILES
from hqueue.local.versions import hbase_jars
from hqueue.store import StorePort
from tests.support import pythons
from tests.support.added_gateways import kerberos_gateways
from tests.support.backends import (
    Backend,
    GatewayBackend,
    LossyWay,
    MemoryBackend,
    NativeBackend,
    SecureBackend,
)
from tests.support.certificates import Certificates
from tests.support.loop_kinds import LOOP_KINDS, loops_of
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair
from tests.support.memory.zookeeper import MemoryZooKeeper
from tests.support.native_hbase import SHOWN_IN_CLEAR
from tests.support.queue_faces import QueueFace, queue_face_of
from tests.support.raw import RawHBase, RawTables
from tests.support.secure_profile import SECURE_OR_CLEAR

# How long an example takes is the machine's matter, and nothing that a test could prove.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# A shell that starts the tests in the background has them ignore it, and all that they start: then
# no command could be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)

_servers: list[local.LocalServer] = []


@pytest.fixture(autouse=True)
def _levels_of_loggers() -> Iterator[None]:
    """A command that a test runs in its process sets levels: the next test would log by them."""
    before = _levels()
    yield
    for name, _ in _levels().items() - before.items():
        logging.getLogger(name).setLevel(before.get(name, logging.NOTSET))


def _levels() -> dict[str, int]:
    known = logging.root.manager.loggerDict
    levels = {name: each.level for name, each in known.items() if isinstance(each, logging.Logger)}
    return {"root": logging.root.level, **levels}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority and what it signs; a test uses names of its own for files that it changes."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


def _serve(
    profile: str, *, gateways: bool = True, orderly_s: float = 30
) -> Iterator[local.LocalServer]:
    # A short path: ZooKeeper and HDFS build long ones below it.
    with tempfile.TemporaryDirectory(prefix=f"hqueue-{profile}-") as home:
        server = local.start(profile, gateways=gateways, home=home)
        _servers.append(server)
        try:
            yield server
        finally:
            _servers.remove(server)
            server.stop(orderly_s=orderly_s)


MARKED_BY_FIXTURE = {
    "server": ("servers",),
    "cluster_server": ("servers", "cluster"),
    "secure_server": ("servers",),
    "secure_gateway": ("servers",),
    "spark_environment": ("servers", "spark"),
}
"""What a test is marked with for what it uses. Those that start servers themselves say so; and no
other fixture has one of these names.
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect tests without looking for cycles, which takes a fifth of the time, and finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_report_header() -> list[str]:
    """Which HBase runs, if it is not that of all tests."""
    chosen = hbase_jars()
    return [] if chosen is HBASE else [f"servers: {chosen.name}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say by which versions of Python the endings of programs were tried, if they were."""
    reporter = terminalreporter
    reports = [*reporter.getreports("passed"), *reporter.getreports("failed")]
    if any("test_endings.py" in report.nodeid for report in reports):
        found = ", ".join(pythons.versions())
        reporter.write_line(f"endings of programs: tried on the Pythons here, {found}")


ON_SERVERS = ("hbase", "native", "secure")
"""The back ends that are a real HBase."""


REPEATED_AS = {
    "in_memory": "repeated",
    "in_memory_first": pytest.mark.thorough("over memory and in `conformance` it is shown, too"),
}
"""For tests that run over memory, too: what their runs over a real HBase are marked with."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs servers; what needs the cluster comes last: it takes time from others.

    What is tested `in_memory_first` runs over a real HBase in `make test-all`, and what is tested
    `in_memory` only in `make test-repeated`: that HBase and memory behave alike is shown by the
    suites of `conformance`. Of both marks, the one that is nearer to the test counts.

    What takes something that only real servers have runs over no other back end. Gateways before
    memory are for processes of their own, and for the suites of what every store must do; HBase
    without gateways is for those suites, in clear and with Kerberos and TLS.
    """
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            for marker in MARKED_BY_FIXTURE.get(fixture, ()):
                item.add_marker(marker)
        if _runs_over(item) in ON_SERVERS:
            near = (each.name for each in item.iter_markers() if each.name in REPEATED_AS)
            if mark := REPEATED_AS.get(next(near, "")):
                item.add_marker(mark)
    config.hook.pytest_deselected(items=[item for item in items if not _is_wanted(item)])
    items[:] = filter(_is_wanted, items)
    items.sort(key=lambda item: item.get_closest_marker("cluster") is not None)


def _runs_over(item: pytest.Item) -> str | None:
    """The back end, if it has one."""
    if "backend" not in getattr(item, "fixturenames", ()):
        return None
    return str(item.callspec.params["backend"])  # type: ignore[attr-defined]


def _by_asyncio(item: pytest.Item) -> bool:
    """Whether asyncio's face of its client is tested: that is shown over memory."""
    return item.callspec.params.get("client") == "asyncio"  # type: ignore[attr-defined]


def _is_wanted(item: pytest.Item) -> bool:
    fixtures = getattr(item, "fixturenames", ())
    kind = _runs_over(item)
    if kind is None:
        return True
    if "hbase" not in fixtures and kind in ON_SERVERS and _by_asyncio(item):
        return False
    if not MARKED_BY_FIXTURE.keys().isdisjoint(fixtures):
        return bool(kind == "hbase")
    if "process_environment" in fixtures:
        return kind not in ("memory", "native", "secure")
    return kind not in ("gateways", "native", "secure") or "conformance" in item.path.parts


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator[local.LocalServer]:
    """A standalone server for the whole session."""
    if "not servers" in pytestconfig.getoption("markexpr"):
        pytest.fail("mark a test that gets a server at run time with `servers`")
    yield from _serve("standalone")


@pytest.fixture(scope="session")
def cluster_server() -> Iterator[local.LocalServer]:
    """A cluster for the whole session: HDFS, three region servers, three gateway pairs."""
    yield from _serve("cluster")


@pytest.fixture(scope="session")
def secure_server() -> Iterator[local.LocalServer]:
    """A server with Kerberos, by TLS or in clear, for the whole session, and its KDC."""
    with mock.patch.dict(PROFILES, {"secure": SECURE_OR_CLEAR}):
        yield from _serve("secure", gateways=False, orderly_s=0)


@pytest.fixture(scope="session")
def secure_gateway(secure_server: local.LocalServer) -> Iterator[hqueue.GatewayAddress]:
    """Gateways before that: a way past Kerberos and TLS."""
    with kerberos_gateways(secure_server) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def server_environment(
    server: local.LocalServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The environment of a subprocess that will find the standalone server."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("HQUEUE_")}
    spark = tmp_path_factory.mktemp("spark")  # A driver that is killed leaves its folders.
    return {
        **own,
        "HQUEUE_LOCAL_HOME": str(server.home),
        "HQUEUE_CONFIG": str(_empty_settings(server.home)),
        "SPARK_LOCAL_DIRS": str(spark),
        "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={spark}",
    }


@pytest.fixture
def process_environment(
    backend: Backend, request: pytest.FixtureRequest, tmp_path: Path
) -> dict[str, str]:
    """The environment of a subprocess that will find the back end."""
    if request.node.callspec.params["backend"] == "hbase":
        found: dict[str, str] = request.getfixturevalue("server_environment")
        return found
    assert isinstance(backend, GatewayBackend)
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("HQUEUE_")},
        "HQUEUE_LOCAL_HOME": str(tmp_path),
        "HQUEUE_CONFIG": str(_empty_settings(tmp_path)),
        "HQUEUE_GATEWAYS": ",".join(map(str, backend.gateways)),
        "HQUEUE_ZOOKEEPER": backend.zookeeper,
        "HQUEUE_NOTIFY_WORKERS": "false",
    }


def _empty_settings(home: Path) -> Path:
    path = home / "no-settings.toml"
    path.touch()
    return path


@pytest.fixture(
    scope="session",
    params=[
        "memory",
        "gateways",
        pytest.param("hbase", marks=pytest.mark.servers),
        pytest.param("native", marks=pytest.mark.servers),
        pytest.param(
            "secure",
            marks=[pytest.mark.servers, SHOWN_IN_CLEAR],
        ),
    ],
)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """What the test runs over: memory, the same behind gateways, a real HBase behind its own, the
    same one without them, or one with Kerberos and TLS.
    """
    if request.param == "memory":
        yield MemoryBackend()
    elif request.param == "gateways":
        cluster = MemoryCluster()
        with contextlib.closing(GatewayPair(cluster)) as pair, MemoryZooKeeper() as zookeeper:
            pair.zookeeper = f"127.0.0.1:{zookeeper.port}"
            yield GatewayBackend(pair, cluster)
    elif request.param == "secure":
        raw = RawHBase(request.getfixturevalue("secure_gateway"))
        yield SecureBackend(request.getfixturevalue("secure_server"), raw)
    else:
        server = request.getfixturevalue("server")
        kind = GatewayBackend if request.param == "hbase" else NativeBackend
        yield kind(server, RawHBase(server.gateways[0]))


@pytest.fixture(scope="session")
def client(backend: Backend) -> Iterator[hqueue.Client]:
    """A client of the back end."""
    with backend.connect() as connected:
        yield connected


@pytest.fixture(scope="session")
def raw(backend: Backend) -> RawTables:
    """The back end's tables, past hqueue."""
    return backend.raw


@pytest.fixture(scope="session")
def store(backend: Backend) -> Iterator[StorePort]:
    """The back end's store, without a client."""
    with contextlib.closing(backend.store()) as opened:
        yield opened


@pytest.fixture
def lossy(backend: Backend) -> Iterator[LossyWay]:
    """A way to the store on which requests and answers get lost."""
    with backend.lossy() as way:
        yield way


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return f"{request.node.originalname.removeprefix('test_')[:60]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def delete_beside(backend: Backend) -> Iterator[Callable[[str], object]]:
    """Deletes queues. A real HBase takes most of a second for one, in which it waits: that is done
    beside the tests that come.
    """
    with backend.connect() as client:

        def delete(name: str) -> None:
            client.disable_queue(name)
            client.delete_queue(name)

        if not isinstance(backend.raw, RawHBase):
            yield delete
            return
        with ThreadPoolExecutor(1) as pool:
            deleting: list[Future[None]] = []
            yield lambda name: deleting.append(pool.submit(delete, name))
        for each in deleting:
            each.result()


@pytest.fixture
def make_queue(
    client: hqueue.Client, queue_name: str, delete_beside: Callable[[str], object]
) -> Iterator[Callable[..., hqueue.Queue]]:
    """Creates queues that are deleted after the test."""
    made: list[str] = []

    def make(partitions: int = 1, **attributes: object) -> hqueue.Queue:
        name = f"{queue_name}-{len(made)}"
        queue = client.create_queue(name, partitions=partitions, **attributes)
        made.append(name)
        return queue

    yield make
    for name in made:
        delete_beside(name)


@pytest.fixture(params=LOOP_KINDS)
def each_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has the test's event loops be of one kind, and of the other."""
    with loops_of(request.param):
        yield


@pytest.fixture(params=["threads", "asyncio"])
def queue_face(request: pytest.FixtureRequest) -> Iterator[QueueFace]:
    """Gives a queue one of the two faces, with the blocking one's calls."""
    with queue_face_of(request.param) as face:
        yield face


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the servers' last log lines with every failure."""
    report = yield
    if report.failed:
        for server in _servers:
            lines = server.last_log_lines(20)
            text = "\n".join(f"{line.process}: {line.text}" for line in lines)
            report.sections.append((f"last log lines of the {server.profile} server", text))
    return report
