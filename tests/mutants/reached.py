"""What the probes of `tests.mutants.probes` call in the tests' processes."""

from __future__ import annotations

import os

REACHED = "MUTANTS_REACHED"
"""Names the file to write to. Processes that a test starts inherit it, and the test's name."""

_written: set[tuple[int, str]] = set()


def reached(number: int) -> None:
    """Write which place was reached, and by which test, once for each process."""
    here = (number, os.environ.get("PYTEST_CURRENT_TEST", ""))
    if here in _written or REACHED not in os.environ:
        return
    with open(os.environ[REACHED], "a", encoding="utf-8") as file:
        file.write(f"{number} {here[1]}\n")  # So short that lines of several processes don't mix.
    _written.add(here)
