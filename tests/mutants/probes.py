"""Which tests reach which places: probes there say so, and change nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from .sites import Site

__all__ = ["reaching_tests", "with_probes"]


def with_probes(source: bytes, sites: Mapping[int, Site]) -> bytes:
    """The file, which writes the number of each of these places that is reached."""
    added: list[tuple[int, bool, int, bytes]] = []
    for number, site in sites.items():
        length = site.stop - site.start
        probe = b'__import__("tests.mutants.reached", fromlist="*").reached(%d)' % number
        opening = b"%s; " % probe if site.is_statement else b"(%s or (" % probe
        added.append((site.start, True, -length, opening))  # What holds another begins before it.
        if not site.is_statement:
            added.append((site.stop, False, length, b"))"))
    pieces, done = [], 0
    for position, _, _, text in sorted(added):
        pieces += [source[done:position], text]
        done = position
    return b"".join([*pieces, source[done:]])


def reaching_tests(path: Path) -> dict[int, set[str]]:
    """The node IDs of the tests that reached each place, from the file that the probes wrote.

    What is reached while modules are imported belongs to no test.
    """
    found: dict[int, set[str]] = defaultdict(set)
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        number, _, current = line.partition(" ")
        if current:
            found[int(number)].add(current.rpartition(" (")[0])  # Without "(call)" or "(setup)".
    return found
