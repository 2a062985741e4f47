"""A disk is filled to its last block; other errors are not taken for a full one."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from .disk_faults import STEP_BYTES, STEP_BYTES_MIN, fill


def test_a_disk_is_filled_to_the_last_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 2 * STEP_BYTES + 5 * STEP_BYTES_MIN + 1
    taken = 0

    def allocate(_: int, at: int, size: int) -> None:
        nonlocal taken
        assert at == taken
        if at + size > room:
            raise OSError(errno.ENOSPC, "no room")
        taken += size

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    assert fill(tmp_path).parent == tmp_path
    assert taken == 2 * STEP_BYTES + 5 * STEP_BYTES_MIN


def test_room_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 3 * STEP_BYTES

    def allocate(_: int, at: int, size: int) -> None:
        nonlocal free
        free -= size

    def statvfs(_: Path) -> SimpleNamespace:
        return SimpleNamespace(f_bfree=free, f_frsize=1)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    monkeypatch.setattr(os, "statvfs", statvfs)
    fill(tmp_path, STEP_BYTES + 1)
    assert free == STEP_BYTES + STEP_BYTES_MIN


def test_another_error_is_not_taken_for_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocate(_: int, at: int, size: int) -> None:
        raise OSError(errno.EIO, "broken", (at, size))

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    with pytest.raises(OSError, match="broken"):
        fill(tmp_path)
