"""Reading and following log files."""

from __future__ import annotations

import time
from pathlib import Path

from hqueue.local.logs import follow_lines, last_lines, read_lines


def write(path: Path, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def test_lines_are_read_by_process_and_number(tmp_path: Path) -> None:
    write(tmp_path / "thrift1.log", "a\nb\nc\n")
    write(tmp_path / "master.log", "m\n")
    assert [(line.process, line.text) for line in read_lines(tmp_path, last=2)] == [
        ("master", "m"),
        ("thrift1", "b"),
        ("thrift1", "c"),
    ]
    assert [line.text for line in read_lines(tmp_path, "thrift*")] == ["a", "b", "c"]
    assert last_lines(tmp_path / "absent.log", 5) == []


def test_following_yields_new_lines_new_processes_and_rolled_files(tmp_path: Path) -> None:
    log = tmp_path / "master.log"
    write(log, "old\nlast\n")
    lines = follow_lines(tmp_path, last=1, timeout_s=20)
    assert next(lines).text == "last"
    write(log, "one\ntwo, ")
    assert next(lines).text == "one"
    write(log, "whole\nbefore rolling\n")
    assert next(lines).text == "two, whole"
    log.rename(tmp_path / "master.log.1")
    write(log, "after rolling\n")
    assert next(lines).text == "before rolling"
    assert next(lines).text == "after rolling"
    write(tmp_path / "thrift1.log", "a new process\n")
    assert next(lines).process == "thrift1"
    lines.close()


def test_following_ends_at_its_bound(tmp_path: Path) -> None:
    began = time.monotonic()
    assert list(follow_lines(tmp_path, timeout_s=0.3)) == []
    assert time.monotonic() - began < 60
