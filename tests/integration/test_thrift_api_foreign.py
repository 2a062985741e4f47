"""The Thrift API and a hub called from Go, by a program whose code is made of the IDL alone."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue import Message, MessageID
from tests.support.backends import MemoryBackend
from tests.support.certificates import Certificates
from tests.support.hubs import HubThread

from .pushing import WorkerProcess

IDLS = [Path(__file__).parents[2] / "thrift" / f"{name}.thrift" for name in ("hqueue", "hub")]
PROGRAM = Path(__file__).parent / "programs" / "foreign_go"
GO_HOME = "/usr/local/go/bin"
"""Where Go is, if it was installed as its authors say."""

BUILD_S = 500


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built from the IDL as it is. Go fetches and keeps the modules that it names."""
    go = shutil.which("go") or shutil.which("go", path=GO_HOME)
    assert go, f"this test needs Go: `go` in the path, or in {GO_HOME}"
    folder = tmp_path_factory.mktemp("go") / "client"
    shutil.copytree(PROGRAM, folder)
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    thriftgo = ["github.com/cloudwego/thriftgo", "-r", "-g", "go:package_prefix=example/hqueue/gen"]
    for command in (
        *([go, "run", *thriftgo, "-o", "gen", str(idl)] for idl in IDLS),
        [go, "build", "-o", "client", "."],
    ):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True,
            timeout=BUILD_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "client"


@pytest.mark.thorough("it needs Go, which nothing else does")
@pytest.mark.timeout(2 * BUILD_S + 200)
@pytest.mark.usefixtures("server")
def test_a_go_program_made_of_the_idl_puts_and_scans(
    program: Path,
    make: Callable[..., hqueue.Queue],
    start: Callable[..., WorkerProcess],
    pushing: hqueue.Client,
) -> None:
    queue = make(2)
    host, port = start(push=False, api_port=0).api_address()
    shown = run(program, "api", f"{host}:{port}", queue.name)
    with queue.scan() as scanner:
        messages = list(scanner)
    put = [Message("ü", b"full", b"k", [("n", b"1"), ("n", b"")])]
    put += [Message("t", b"%d" % n) for n in range(100)]
    anywhere = [Message("t", value) for value in (b"any", b"a", b"b", b"once", b"and once")]
    assert sorted((tuple(m)[:4] for m in messages), key=repr) == sorted(
        (tuple(m)[:4] for m in put + anywhere), key=repr
    )
    came = [struct(each) for each in shown["message"]]
    assert came == [tuple(m)[:6] for m in messages if m.partition == 1]
    assert [fields[1] for fields in came if fields[0] == "ü" or fields[1].isdigit()] == [
        message.value for message in put
    ]
    once = next(m.id for m in messages if m.value == b"once")
    first = {"timestamp": once.timestamp, "sequenceID": once.sequence}
    assert shown["put"] == [{"firstID": first, "count": 2}] * 2
    for what in ("end", "illegal", "not found", "no scanner", "reused"):
        assert shown[what] == [True], what
    located = [(each["partitionID"], each["host"], each["port"]) for each in shown["locations"][0]]
    assert located == [(p.partition, p.host, p.port) for p in pushing.locations(queue.name)]


@pytest.mark.thorough("it needs Go, which nothing else does")
@pytest.mark.timeout(2 * BUILD_S + 200)
def test_what_a_go_program_leaves_out_of_a_hubs_calls_is_left_alone(program: Path) -> None:
    backend = MemoryBackend()
    with contextlib.ExitStack() as stack:
        creator = stack.enter_context(backend.connect())
        queue = creator.create_queue("q", partitions=2)
        hub = stack.enter_context(HubThread(stack.enter_context(backend.connect()), queue.name))
        shown = run(program, "hub", str(hub.address), queue.name)
        with queue.scan_topic("t") as scanner:
            found = [(each.value, each.key) for each in scanner]
    assert found == [(b"a", None), (b"", b""), (b"", b"")]
    wanted = {"messageBound": 9, "application": {"team": "ü"}}
    assert shown["given"] == [wanted]
    assert shown["left out"] == shown["without fields"] == [wanted]
    assert shown["defaults"] in ([{}], [{"application": {}}])
    assert shown["dropped"] == [0, 1]
    assert shown["newest"] == [2]
    rules = {"publish": ["me"], "subscribe": ["*"], "manage": []}
    assert [{"manage": [], **each} for each in shown["rules"]] == [rules, rules]
    assert shown["illegal"] == [True, True]


@pytest.mark.thorough("it needs Go, which nothing else does")
@pytest.mark.timeout(2 * BUILD_S + 200)
def test_a_go_program_speaks_tls_and_is_who_its_certificate_says(
    program: Path, certificates: Certificates
) -> None:
    backend = MemoryBackend().apart(2_000)
    with contextlib.ExitStack() as stack:
        creator = stack.enter_context(backend.connect())
        queue = creator.create_queue("q", partitions=2)
        client = stack.enter_context(backend.connect(**certificates.of("hub")))
        acl = {"authorizer": "acl", "creators": "me", "names": "me:sub"}
        serves = {**acl, "administrators": "me", "api_port": 0, "api_principals": "me"}
        hub = stack.enter_context(HubThread(client, queue.name, **serves))
        assert hub.hub.api is not None
        called = {"hub": str(hub.address), "api": str(hub.hub.api.address)}
        good = tls_files(certificates.of("me"))
        assert run(program, "hub", called["hub"], queue.name, env=good)["dropped"] == [0, 1]
        assert run(program, "api", called["api"], queue.name, env=good)["put"]
        for env, said in (
            (tls_files(certificates.of("stranger")), "may not call the port|TNotAllowed"),
            (tls_files(certificates.of("old", days=-1)), "expired certificate"),
            ({"TLS_CA": good["TLS_CA"]}, "certificate required|bad certificate"),
            ({}, "EOF|reset"),
        ):
            for kind, address in called.items():
                assert re.search(said, fail(program, kind, address, queue.name, env=env))


def tls_files(of: dict[str, Any]) -> dict[str, str]:
    """The environment in which the program speaks TLS."""
    return {"TLS_CA": of["tls_ca"], "TLS_CERTIFICATE": of["tls_certificate"]}


def fail(program: Path, *arguments: str, env: dict[str, str]) -> str:
    """Run it where it is refused; what it says."""
    done = begin(program, *arguments, env=env)
    assert done.returncode == 1, done.stdout
    return done.stderr


def begin(program: Path, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, **env},
    )  # fmt: skip


def run(program: Path, *arguments: str, env: dict[str, str] | None = None) -> dict[str, list[Any]]:
    """Run it to its end; what it showed, by kind."""
    done = begin(program, *arguments, env=env or {})
    assert done.returncode == 0, done.stderr
    shown: dict[str, list[Any]] = {}
    for line in done.stdout.splitlines():
        kind, what = json.loads(line)
        shown.setdefault(kind, []).append(what)
    return shown


def struct(document: dict[str, Any]) -> tuple[Any, ...]:
    """A message as Go showed it, as the library's has its fields."""

    def content(name: str) -> bytes | None:
        return base64.b64decode(document[name]) if name in document else None

    headers = tuple(
        (base64.b64decode(each["name"]).decode(), base64.b64decode(each["value"]))
        for each in document.get("headers", ())
    )
    number = MessageID(document["id"]["timestamp"], document["id"]["sequenceID"])
    topic = base64.b64decode(document["topic"]).decode()
    return topic, content("value"), content("key"), headers, number, document["partitionID"]
