"""Rot changes files in place, the newest first, and no more of them than are asked for."""

from __future__ import annotations

import os
import random
from pathlib import Path

from .rot import cut_end, files_of_blocks, flip_bits, rot_some

CONTENT = bytes(range(256)) * 64


def test_flipped_bits_leave_a_file_as_long_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    flip_bits(path, random.Random(1), count=3)
    found = path.read_bytes()
    assert len(found) == len(CONTENT)
    changed = [a ^ b for a, b in zip(CONTENT, found, strict=True) if a != b]
    assert 1 <= len(changed) <= 3
    assert all(each.bit_count() == 1 for each in changed)


def test_a_file_that_is_cut_off_keeps_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    cut_end(path, random.Random(1))
    found = path.read_bytes()
    assert len(found) < len(CONTENT)
    assert CONTENT.startswith(found)


def test_the_newest_files_rot_and_the_others_do_not(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(10)]
    for age_s, path in enumerate(files):
        path.write_bytes(CONTENT)
        os.utime(path, (1_000 - age_s, 1_000 - age_s))
    gone = tmp_path / "gone"
    harmed = rot_some([*files, gone], random.Random(1), share=1, count_max=4)
    assert harmed == files[:4]
    assert [path for path in files if path.read_bytes() != CONTENT] == files[:4]


def test_empty_files_and_no_files_are_no_trouble(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    flip_bits(empty, random.Random(1))
    cut_end(empty, random.Random(1))
    assert empty.read_bytes() == b""
    assert rot_some([], random.Random(1)) == []


def test_only_closed_blocks_may_rot_that_another_data_node_has_as_new(tmp_path: Path) -> None:
    for place in (
        *("1/current/finalized/blk_7", "1/current/finalized/blk_7_1001.meta"),
        *("1/current/finalized/a/blk_8", "1/current/finalized/a/blk_8_1002.meta"),
        *("1/current/finalized/blk_9", "1/current/finalized/blk_9_1004.meta"),
        *("1/current/rbw/blk_6", "1/current/rbw/blk_6_1000.meta"),
        "1/current/VERSION",
        *("2/current/finalized/blk_7", "2/current/finalized/blk_7_1001.meta"),
        *("2/current/rbw/blk_6", "2/current/rbw/blk_6_1000.meta"),
        *("3/current/finalized/blk_9", "3/current/finalized/blk_9_1003.meta"),
    ):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)
    found = files_of_blocks(tmp_path / "1", [tmp_path / "2", tmp_path / "3"])
    assert [path.name for path in found] == ["blk_7", "blk_7_1001.meta"]
