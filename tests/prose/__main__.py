"""Finds the constructions in all files of the repository: `make lint` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from . import CONSTRUCTIONS, constructions, findings

ROOT = Path(__file__).parents[2]
READ = ("*.py", "*.md", "*.thrift", "Makefile", "*.cfg", "*.toml", "*.yml")
FILES = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate")


def main() -> int:
    known = constructions(CONSTRUCTIONS.read_text("utf-8"))
    listed = subprocess.run([*FILES, *READ], cwd=ROOT, capture_output=True, check=True, text=True)
    count = 0
    for name in filter(lambda each: (ROOT / each).exists(), listed.stdout.splitlines()):
        for found in sorted(findings(name, (ROOT / name).read_text("utf-8"), known)):
            count += 1
            print(f"{name}:{found.line}: {found.written!r}: write: {found.instead}")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
