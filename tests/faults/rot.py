"""Files that rot: bits that flip, and ends that are cut off."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

__all__ = ["CHECKSUMS", "cut_end", "files_of_blocks", "flip_bits", "rot_some"]

FLIPS_MAX = 8
CHECKSUMS = "blk_*_*.meta"
"""The names of the files with the checksums of a data node's blocks."""


def flip_bits(path: Path, rng: random.Random, *, count: int = FLIPS_MAX) -> None:
    """Flip bits of a file in places that are drawn; an empty file stays as it is."""
    with path.open("r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        for _ in range(count if size else 0):
            at = rng.randrange(size)
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))


def cut_end(path: Path, rng: random.Random) -> None:
    """Cut a file off at a place that is drawn."""
    size = path.stat().st_size
    if size:
        os.truncate(path, rng.randrange(size))


def rot_some(
    files: Iterable[Path], rng: random.Random, *, share: float = 0.5, count_max: int = 200
) -> list[Path]:
    """Let some of these files rot, the newest first; each in one of both ways.

    Args:
        files: among which it is drawn.
        rng: draws.
        share: of the files.
        count_max: how many at most.

    Returns:
        Those that rotted. A file that its server deleted meanwhile is not among them.
    """
    ages = []
    for path in files:
        try:
            ages.append((path.stat().st_mtime, path))
        except FileNotFoundError:
            continue
    harmed = []
    for _, path in sorted(ages, reverse=True):
        if len(harmed) == count_max or rng.random() > share:
            continue
        try:
            rng.choice((flip_bits, cut_end))(path, rng)
        except FileNotFoundError:
            continue
        harmed.append(path)
    return harmed


def files_of_blocks(datanode: Path, others: Iterable[Path]) -> list[Path]:
    """The files of those blocks of a data node that are closed, and that another one has in the
    same generation: each block's content and its checksums.

    Args:
        datanode: where it stores.
        others: where the other ones store.
    """
    elsewhere = {path.name for other in others for path in other.rglob(CHECKSUMS)}
    files = []
    for path in datanode.rglob(f"finalized/**/{CHECKSUMS}"):
        if path.name in elsewhere:  # The name has the block's number, and its generation.
            files += [path.with_name(path.name.rpartition("_")[0]), path]
    return files
