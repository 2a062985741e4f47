"""Draws the places, plants one fault after the other, and says which were caught."""

from __future__ import annotations

import argparse
import difflib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .sites import Site, sample

ROOT = Path(__file__).parents[2]
DRAWN_FROM = ("hqueue/", "workers/")
LEFT_OUT = ("hqueue/cli/", "hqueue/local/")
"""The command line and what starts Java: their tests are those with servers."""

NO_JUDGES = ("test_documents.py", "test_packaging.py", "test_extras.py")
"""Tests of what is shipped and shown. They take long, and no fault of behaviour fails them."""

BEHAVIOUR = {"conformance", "integration"}
"""Folders whose tests go through most of the library, over memory."""

EXPLORING = {"fuzz", "model", "property"}
"""Those that take long, for they try out much."""

SERVERLESS = "not servers and not thorough and not kafka and not drivers"
TEST_S_MAX = 60
"""How long one test may take: a fault that lets it hang is caught then."""

RUN_S_MAX = 400
DATA_BYTES_MAX = 4 * 1024**3
"""What a process may hold: a fault that takes all memory is caught before the machine feels it."""

CORES = str(os.cpu_count() or 1)


@dataclass
class Verdict:
    """How the tests ended."""

    caught_by: str | None
    took_s: float


def main() -> int:
    """Plant them, and give the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that nothing is left behind.
    if options.nice:
        os.nice(options.nice)
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))  # Inherited.
    with tempfile.TemporaryDirectory(prefix="hqueue-mutants-") as folder:
        copy = Path(folder) / "tree"
        _copy(copy)
        sites = sample(copy, _chosen(tuple(options.only)), options.seed, options.count)
        if options.list:
            for number, site in enumerate(sites):
                source = (copy / site.path).read_bytes()
                print(
                    _named(number, site),
                    _difference(site.path, source, site.plant(source)),
                    sep="\n",
                )
            return 0
        if not options.no_baseline:
            unharmed = _judge(copy, None)
            if unharmed.caught_by is not None:
                print(f"without any fault this fails: {unharmed.caught_by}", file=sys.stderr)
                return 2
            print(f"without any fault all pass, in {unharmed.took_s:.0f} s", flush=True)
        survived = [
            site for number, site in enumerate(sites) if not _caught(copy, site, number, options)
        ]
    print(f"\ncaught {len(sites) - len(survived)} of {len(sites)} (seed {options.seed})")
    for site in survived:
        print(f"survived: {site.kind} at {site.path}:{site.line}")
    return int(len(sites) - len(survived) < options.at_least)


def _chosen(only: tuple[str, ...]) -> Callable[[str], bool]:
    if only:
        return lambda path: path.startswith(only)
    return lambda path: path.startswith(DRAWN_FROM) and not path.startswith(LEFT_OUT)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which places are drawn")
    parser.add_argument("--count", type=int, default=30, help="how many")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="a folder or file, instead of the library and the worker; may be repeated",
    )
    parser.add_argument("--at-least", type=int, default=0, help="fail if fewer are caught")
    parser.add_argument("--nice", type=int, default=0, help="give way to other processes")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first of those drawn")
    parser.add_argument("--list", action="store_true", help="show the faults, and run nothing")
    parser.add_argument("--no-baseline", action="store_true", help="trust that all pass unharmed")
    return parser.parse_args()


def _copy(target: Path) -> None:
    """What git knows or would add, as it is now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.decode().split("\0")):
        origin = ROOT / name
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if origin.is_symlink() or origin.is_file():
            shutil.copy2(origin, target / name, follow_symlinks=False)


def _caught(copy: Path, site: Site, number: int, options: argparse.Namespace) -> bool:
    path = copy / site.path
    source = path.read_bytes()
    planted = site.plant(source)
    what = _named(number, site)
    if number < options.skip:
        print(what)
        return True
    path.write_bytes(planted)
    try:
        verdict = _judge(copy, site.path)
    finally:
        path.write_bytes(source)
    if verdict.caught_by is None:
        print(f"{what}: SURVIVED ({verdict.took_s:.0f} s)")
        print(_difference(site.path, source, planted), flush=True)
        return False
    print(f"{what}: caught by {verdict.caught_by} ({verdict.took_s:.0f} s)", flush=True)
    return True


def _named(number: int, site: Site) -> str:
    return f"{number + 1:3} {site.kind} at {site.path}:{site.line}"


def _difference(path: str, before: bytes, after: bytes) -> str:
    lines = (text.decode().splitlines() for text in (before, after))
    return "\n".join(difflib.unified_diff(*lines, path, path, lineterm="", n=2))


def _judge(copy: Path, harmed: str | None) -> Verdict:
    """Run the tests in stages, likely ones first, and stop at the first failure."""
    began = time.monotonic()
    for files in _stages(copy, harmed):
        failed = _failed_test(copy, files, RUN_S_MAX - (time.monotonic() - began))
        if failed is not None:
            return Verdict(failed, time.monotonic() - began)
    return Verdict(None, time.monotonic() - began)


def _stages(copy: Path, harmed: str | None) -> Iterator[Sequence[str]]:
    every = [
        path.relative_to(copy)
        for path in sorted((copy / "tests").rglob("test_*.py"))
        if path.name not in NO_JUDGES
    ]
    near = [path for path in every if harmed and _is_about(copy / path, harmed)]
    rest = [path for path in every if path not in near]
    stages = [
        near,
        [path for path in rest if not BEHAVIOUR.isdisjoint(path.parts)],
        [path for path in rest if (BEHAVIOUR | EXPLORING).isdisjoint(path.parts)],
        [path for path in rest if not EXPLORING.isdisjoint(path.parts)],
    ]
    return ([str(path) for path in stage] for stage in stages if stage)


def _is_about(test: Path, harmed: str) -> bool:
    """Whether a test imports the module, or lies where its tests lie."""
    parts = Path(harmed).with_suffix("").parts
    package, module = parts[-2], parts[-1]
    text = test.read_text()
    return (
        f"{package}.{module} " in text
        or f"from {package} import {module}" in text
        or test.stem == f"test_{module}"
        or (module == "__init__" and f"{package} import" in text)
    )


def _failed_test(copy: Path, files: Sequence[str], seconds: float) -> str | None:
    command = [
        sys.executable, "-m", "pytest", "--exitfirst", "--quiet", "-p", "no:cacheprovider",
        "-m", SERVERLESS, "--timeout", str(TEST_S_MAX), "--hypothesis-seed", "0",
        "--numprocesses", CORES, "--dist", "worksteal", *files,
    ]  # fmt: skip
    folders = (copy, copy / "workers", copy / "spark")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        command, cwd=copy, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        return "its time: the tests hang"
    finally:
        _kill(process)
    if process.returncode in (0, 5):  # 5: none of these tests is among the serverless.
        return None
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else said.strip().splitlines()[-1]


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # All have ended.
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
