"""Disks whose power can be cut: an ext4 file system of its own on a loop device for each server.

What a power cut leaves is decided by the kernel's file system, as on real disks: the ioctl by
which file systems are tested themselves (``EXT4_IOC_SHUTDOWN``, without a flush of the log) drops
at one moment all that was not written to the device: the page cache, the files' sizes and names,
and the journal's open transaction. What fsync had written stays. Mounting the disk again replays
the journal, after a check as a starting machine makes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = [
    "PROGRAMS",
    "Disk",
    "NoDisksError",
    "can_have_disks",
    "can_slow_disks",
    "disks_at",
]

SIZE_BYTES = 8 * 1024 * 1024 * 1024
"""The image is sparse: it takes what is written."""
SHUTDOWN = 0x8004587D
WITHOUT_LOG_FLUSH = 2
TIMEOUT_S = 60.0
BUSY_S = 15.0
REPAIRED_MAX = 1
"""Above this exit code e2fsck has left faults."""
PROGRAMS = ("mkfs.ext4", "e2fsck", "losetup", "mount", "umount")
WRITES_OF_A_DEVICE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_iops_device")
"""The kernel reads here how many writes a second each device takes, from all processes together."""


class NoDisksError(Exception):
    """This process may not make disks, or one is broken."""


class Disk:
    """A disk, mounted at a folder while it has power.

    Args:
        image: the file that stands for it.
        at: the folder.
    """

    def __init__(self, image: Path, at: Path) -> None:
        self.at = at
        self.image = image
        self._device = ""

    def make(self) -> None:
        """Make an empty file system, and mount it."""
        self.image.touch()
        os.truncate(self.image, SIZE_BYTES)
        # Without lazy parts, which the kernel would write later, beside the servers.
        lazy = "lazy_itable_init=0,lazy_journal_init=0"
        _run("mkfs.ext4", "-q", "-F", "-E", lazy, "-J", "size=64", str(self.image))
        self._device = _run("losetup", "--find", "--show", str(self.image)).strip()
        self.at.mkdir(parents=True, exist_ok=True)
        self._mount()
        (self.at / "lost+found").rmdir()  # Servers take a new disk for an empty folder.

    def sync(self) -> None:
        """Write all that was written to it to the device."""
        _run("sync", "--file-system", str(self.at))

    def lose_power(self) -> None:
        """Drop what was not synced. From then on all calls on its files fail."""
        folder = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, SHUTDOWN, struct.pack("I", WITHOUT_LOG_FLUSH))
        finally:
            os.close(folder)

    def slow_down(self, writes_s: int) -> None:
        """Let the device take so many writes a second, until `speed_up`."""
        device = os.stat(self._device).st_rdev
        WRITES_OF_A_DEVICE.write_text(f"{os.major(device)}:{os.minor(device)} {writes_s}\n")

    def speed_up(self) -> None:
        """Let the device write as fast as it can again, also what waits."""
        self.slow_down(0)

    def recover(self) -> None:
        """Mount it again, when nobody has a file of it open any more."""
        self._unmount()
        checked = subprocess.run(
            ["e2fsck", "-p", self._device],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if checked.returncode > REPAIRED_MAX:
            raise NoDisksError(f"e2fsck: {checked.stdout} {checked.stderr}")
        self._mount()

    def remove(self) -> None:
        """Unmount and detach what is there of it, even if files of it are open."""
        with contextlib.suppress(OSError):
            self.speed_up()  # Else what waits would wait, and the device's number be slow for ever.
        for command in (("umount", "--lazy", str(self.at)), ("losetup", "-d", self._device)):
            with contextlib.suppress(NoDisksError):
                _run(*command)
        self.image.unlink(missing_ok=True)

    def _mount(self) -> None:
        _run("mount", "-t", "ext4", self._device, str(self.at))

    def _unmount(self) -> None:
        """Unmount it; a process that was killed may hold it for a moment."""
        deadline = time.monotonic() + BUSY_S
        while True:
            try:
                _run("umount", str(self.at))
                return
            except NoDisksError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


@contextlib.contextmanager
def disks_at(below: Path, folders: Mapping[str, Path]) -> Iterator[dict[str, Disk]]:
    """Disks at these folders, for as long as the context is open; each by its name.

    Args:
        below: a folder that all these folders lie in.
        folders: where each disk is mounted.

    Raises:
        NoDisksError: this process may not make them.
    """
    if not can_have_disks():
        raise NoDisksError(f"disks take root, loop devices, and {', '.join(PROGRAMS)}")
    below.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hqueue-disks-") as images:
        disks = {name: Disk(Path(images) / name, at) for name, at in folders.items()}
        # A process that `ip netns exec` starts has a copy of all mounts. So that a disk is
        # unmounted there, too, what lies below must be shared.
        _run("mount", "--bind", "--make-shared", str(below), str(below))
        try:
            for disk in disks.values():
                disk.make()
            yield disks
        finally:
            for disk in disks.values():
                disk.remove()
            _run("umount", "--lazy", str(below))


def can_have_disks() -> bool:
    """Whether this process may mount file systems on loop devices: it tries."""
    if os.geteuid() != 0 or not all(map(shutil.which, PROGRAMS)):
        return False
    with tempfile.TemporaryDirectory(prefix="hqueue-disks-") as folder:
        disk = Disk(Path(folder) / "image", Path(folder) / "disk")
        try:
            disk.make()
            disk.lose_power()
            disk.recover()
        except (NoDisksError, OSError):
            return False
        finally:
            disk.remove()
    return True


def can_slow_disks() -> bool:
    """Whether this process may tell the kernel how fast a device writes."""
    return os.geteuid() == 0 and os.access(WRITES_OF_A_DEVICE, os.W_OK)


def _run(*command: str) -> str:
    """Run a program; what it printed."""
    try:
        return subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        ).stdout
    except subprocess.CalledProcessError as exc:
        raise NoDisksError(f"{' '.join(command)}: {exc.stderr}") from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise NoDisksError(f"{' '.join(command)}: {exc}") from exc
