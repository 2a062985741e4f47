"""The Thrift API called from Go, by a program whose code for it is made of the IDL alone."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue import Message, MessageID

from .pushing import WorkerProcess

IDL = Path(__file__).parents[2] / "thrift" / "hqueue.thrift"
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
    generate = ("-r", "-g", "go:package_prefix=example/hqueue/gen", "-o", "gen", str(IDL))
    for command in (
        [go, "run", "github.com/cloudwego/thriftgo", *generate],
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
    done = subprocess.run(
        [str(program), f"{host}:{port}", queue.name],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown: dict[str, list[Any]] = {}
    for line in done.stdout.splitlines():
        kind, what = json.loads(line)
        shown.setdefault(kind, []).append(what)
    with queue.scan() as scanner:
        messages = list(scanner)
    put = [Message("ü", b"full", b"k", [("n", b"1"), ("n", b"")])]
    put += [Message("t", b"%d" % n) for n in range(100)]
    anywhere = [Message("t", value) for value in (b"any", b"a", b"b")]
    assert sorted((tuple(m)[:4] for m in messages), key=repr) == sorted(
        (tuple(m)[:4] for m in put + anywhere), key=repr
    )
    came = [struct(each) for each in shown["message"]]
    assert came == [tuple(m)[:6] for m in messages if m.partition == 1]
    assert [fields[1] for fields in came if fields[0] == "ü" or fields[1].isdigit()] == [
        message.value for message in put
    ]
    for what in ("end", "illegal", "not found", "no scanner"):
        assert shown[what] == [True], what
    located = [(each["partitionID"], each["host"], each["port"]) for each in shown["locations"][0]]
    assert located == [(p.partition, p.host, p.port) for p in pushing.locations(queue.name)]


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
