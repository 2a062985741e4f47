"""Push delivery to a subscriber that knows nothing but the IDL and docs/push-reference.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hqueue
from hqueue import Message
from tests.support.waiting import wait_for

from .running import Program

IDL = Path(__file__).parents[2] / "thrift" / "subscriber.thrift"


@pytest.mark.usefixtures("server")
def test_one_that_is_written_from_the_idl_gets_keys_and_headers(
    make: Callable[..., hqueue.Queue],
    start: Callable[..., Any],
    server_environment: dict[str, str],
    pushing: hqueue.Client,
    tmp_path: Path,
) -> None:
    queue = make(1)
    queue.put(Message("t", b"plain"))
    queue.put(Message("t", b"more", b"key", [("n", b"1"), ("ü", b""), ("n", b"2")]))
    queue.put(Message("t", b"empty", b""), partition=0)
    file = tmp_path / "got"
    root = pushing.settings.zookeeper_root
    known = (
        IDL,
        pushing.settings.zookeeper,
        root,
        queue.name,
        "foreign",
        "0",
        file,
        "1",
    )
    with Program("foreign_subscriber", *known, environment=server_environment) as program:
        program.await_ready()
        start()
        wait_for(lambda: len(done(file)) == 3, "the messages came")
    assert [(each["value"], each["key"], each["headers"]) for each in done(file)] == [
        ("plain", None, []),
        ("more", "key", [["n", "1"], ["ü", ""], ["n", "2"]]),
        ("empty", "", []),
    ]


@pytest.mark.usefixtures("server")
def test_one_that_is_written_from_the_idl_answers_for_each_message(
    make: Callable[..., hqueue.Queue],
    start: Callable[..., Any],
    server_environment: dict[str, str],
    pushing: hqueue.Client,
    tmp_path: Path,
) -> None:
    queue = make(1)
    queue.put([Message("t", b"%d" % number) for number in range(4)])
    settings, file = pushing.settings, tmp_path / "got"
    known = (IDL, settings.zookeeper, settings.zookeeper_root, queue.name, "foreign", "0", file)
    answers = "1:2,7:1"  # The second one names no message of its call: it counts as none.
    with Program("foreign_subscriber", *known, answers, environment=server_environment) as program:
        program.await_ready()
        start()
        wait_for(lambda: len(done(file)) == 2, "the messages came")
    assert [each["value"] for each in came(file)] == ["0", "1", "2", "3", "2", "3", "2", "3"]
    (letter,) = queue.dead_letters.waiting("foreign")
    assert letter.message.value == b"1"
    assert letter.reason == "rejected by the subscriber: foreign"


def done(file: Path) -> list[dict[str, Any]]:
    """What it has answered with 0."""
    return [each for each in came(file) if each["status"] == 0]


def came(file: Path) -> list[dict[str, Any]]:
    """What it was given."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
