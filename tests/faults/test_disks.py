"""A disk that loses its power keeps what was synced, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .disks import (
    WRITES_OF_A_DEVICE,
    Disk,
    NoDisksError,
    can_have_disks,
    can_slow_disks,
    disks_at,
)

WRITER = """\
import os, sys, time
def write(name, content, sync):
    with open(os.path.join(sys.argv[1], name), "ab") as file:
        file.write(content)
        file.flush()
        if sync:
            os.fsync(file.fileno())
write("unsynced", b"u" * 100_000, False)
write("partly", b"s" * 100_000, True)
write("partly", b"u" * 100_000, False)
write("synced", b"s" * 100_000, True)
os.rename(os.path.join(sys.argv[1], "synced"), os.path.join(sys.argv[1], "renamed"))
print("written", flush=True)
time.sleep(600)
"""


def test_what_was_synced_is_there_after_a_power_cut_and_all_else_is_gone(tmp_path: Path) -> None:
    if not can_have_disks():
        with pytest.raises(NoDisksError, match="root"), disks_at(tmp_path, {}):
            pass
        return
    at = tmp_path / "data" / "disk"
    with disks_at(tmp_path / "data", {"disk": at}) as disks:
        # In a copy of all mounts, as a server on a host of its own has it.
        command = ["unshare", "--mount", "--propagation", "slave", sys.executable, "-c", WRITER]
        with subprocess.Popen([*command, str(at)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"written\n"
            assert (at / "unsynced").stat().st_size == 100_000
            disks["disk"].lose_power()
            with pytest.raises(OSError, match="Input/output error"):
                (at / "unsynced").read_bytes()
            writer.kill()
        disks["disk"].recover()
        # What follows in the last block may have been given a length, but no content.
        partly = (at / "partly").read_bytes()
        assert partly.startswith(b"s" * 100_000)
        assert b"u" not in partly
        assert not (at / "unsynced").exists() or not (at / "unsynced").read_bytes()
        # A rename is not synced either: the file has its earlier name.
        assert (at / "synced").read_bytes() == b"s" * 100_000
        assert not (at / "renamed").exists()
    assert not os.path.ismount(at)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    attached = subprocess.run(["losetup", "--list"], capture_output=True, text=True, check=True)
    assert str(disks["disk"].image) not in attached.stdout
    assert not disks["disk"].image.exists()


def test_a_disk_is_slow_until_it_is_told_otherwise(tmp_path: Path) -> None:
    if not can_have_disks() or not can_slow_disks():
        disk = Disk(tmp_path / "image", tmp_path / "disk")
        with pytest.raises(OSError, match="No such file"):
            disk.slow_down(2)
        return
    at = tmp_path / "data" / "disk"
    with disks_at(tmp_path / "data", {"disk": at}) as disks:
        disks["disk"].slow_down(2)
        began = time.monotonic()
        for _ in range(3):
            _write_synced(at / "slowly")
        assert time.monotonic() - began > 0.5
        disks["disk"].speed_up()
        for _ in range(20):
            _write_synced(at / "fast")
        disks["disk"].slow_down(2)
    assert not WRITES_OF_A_DEVICE.read_text().strip()


def _write_synced(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"s" * 100)
        file.flush()
        os.fsync(file.fileno())
