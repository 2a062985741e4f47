"""Disks of a size, which can be full: tmpfs. It takes root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["SizedDisk", "sized_disk"]

SIZE_BYTES = 4 * 1024 * 1024 * 1024
FULL_WITHIN_S = 20.0


class SizedDisk:
    """A disk that is mounted at a folder.

    Args:
        at: the folder.
    """

    def __init__(self, at: Path) -> None:
        self.at = at

    def fill(self, left_bytes: int = 0) -> None:
        """Take all of its room away, but for what is left. What writes meanwhile may be faster:
        then it tries again.
        """
        ends_s = time.monotonic() + FULL_WITHIN_S
        while self._free_bytes() > left_bytes:
            assert time.monotonic() < ends_s, "the disk could not be filled"
            found = os.statvfs(self.at)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            with contextlib.suppress(subprocess.CalledProcessError):
                self._resize(used + left_bytes)

    def free(self) -> None:
        """Give it its room again."""
        self._resize(SIZE_BYTES)

    def _free_bytes(self) -> int:
        found = os.statvfs(self.at)
        return found.f_bfree * found.f_frsize

    def _resize(self, size: int) -> None:
        _mount("-o", f"remount,size={size}", str(self.at))


@contextlib.contextmanager
def sized_disk(at: Path) -> Iterator[SizedDisk]:
    """A disk at this folder, for as long as the context is open."""
    assert os.geteuid() == 0, "a disk of a size takes root"
    at.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(at))
    try:
        yield SizedDisk(at)
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)
