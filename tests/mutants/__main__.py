"""Draws the places, surveys the tests, plants one fault after the other, says which were caught."""

from __future__ import annotations

import argparse
import difflib
import os
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

from .choosing import Survey
from .judging import PASSED, TIMED_OUT
from .probes import reaching_tests, with_probes
from .sites import Site, sample
from .tree import Tree

DRAWN_FROM = ("hqueue/", "workers/")
LEFT_OUT = ("hqueue/cli/", "hqueue/local/")
"""The command line and what starts Java: their tests are those with servers."""

NO_JUDGES = ("test_documents.py", "test_packaging.py", "test_extras.py")
"""Tests of what is shipped and shown. They take long, and no fault of behaviour fails them."""

SURVEY_S_MAX = 2_400
"""How long all tests may take over the tree without a fault."""

JUDGING_S_MIN = 150
"""How long the tests of one fault may take, whatever they took before: then they hang."""

DATA_BYTES_MAX = 4 * 1024**3
"""What a process may hold: a fault that takes all memory is caught before the machine feels it."""

CORES = os.cpu_count() or 1
NO_TESTS = 5
"""The exit code of pytest when none of the tests is there."""


def main() -> int:
    """Plant them, and give the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # So that nothing is left behind.
    if options.nice:
        os.nice(options.nice)
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))  # Inherited.
    with tempfile.TemporaryDirectory(prefix="hqueue-mutants-") as folder:
        tree = Tree(Path(folder), options.test_seconds)
        drawn = sample(tree.root, _wanted(tuple(options.only)), options.seed, options.count)
        sites = dict(enumerate(drawn, 1))
        if options.list:
            for number, site in sites.items():
                print(_named(number, site), _difference(tree, site), sep="\n")
            return 0
        survey = _survey(tree, sites)
        if survey is None:
            return 2
        caught = [site for number, site in sites.items() if _catch(tree, survey, number, site)]
    print(f"\ncaught {len(caught)} of {len(sites)} (seed {options.seed})")
    for site in drawn:
        if site not in caught:
            print(f"survived: {site.kind} at {site.path}:{site.line}")
    return int(len(caught) < options.at_least)


def _wanted(only: tuple[str, ...]) -> Callable[[str], bool]:
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
    parser.add_argument("--test-seconds", type=int, default=60, help="when one test hangs")
    parser.add_argument("--nice", type=int, default=0, help="give way to other processes")
    parser.add_argument("--list", action="store_true", help="show the faults, and run nothing")
    return parser.parse_args()


def _survey(tree: Tree, sites: Mapping[int, Site]) -> Survey | None:
    """Run all tests once, over probes instead of faults."""
    by_path: dict[str, dict[int, Site]] = defaultdict(dict)
    for number, site in sites.items():
        by_path[site.path][number] = site
    sources = {path: (tree.root / path).read_bytes() for path in by_path}
    for path, source in sources.items():
        tree.write(path, with_probes(source, by_path[path]))
    began = time.monotonic()
    spread = ("--numprocesses", str(CORES + 2), "--dist", "worksteal")
    ignored = (f"--ignore-glob=*/{name}" for name in NO_JUDGES)
    run = tree.run([], SURVEY_S_MAX, *spread, *ignored, "tests")
    for path, source in sources.items():
        tree.write(path, source)
    if run is None:
        print(f"without a fault the tests take longer than {SURVEY_S_MAX} s", file=sys.stderr)
        return None
    passed = {test: took_s for test, (how, took_s) in run.tests.items() if how == PASSED}
    failed = sorted(run.tests.keys() - passed.keys())
    if len(failed) > len(run.tests) // 100:
        print(run.written, "the tests fail without a fault", sep="\n", file=sys.stderr)
        return None
    took_s = time.monotonic() - began
    print(f"without a fault {len(passed)} tests pass, in {took_s:.0f} s", flush=True)
    for test in failed:
        print(f"is no judge, for it fails without a fault: {test}", flush=True)
    return Survey(passed, reaching_tests(tree.reached))


def _catch(tree: Tree, survey: Survey, number: int, site: Site) -> bool:
    """Plant the fault, run the tests that can catch it, and say what came of it."""
    chosen = survey.chosen(number, site.path)
    source = (tree.root / site.path).read_bytes()
    began = time.monotonic()
    tree.write(site.path, site.plant(source))
    try:
        catcher = _catcher(tree, chosen, survey.seconds(chosen)) if chosen else None
    finally:
        tree.write(site.path, source)
    reaching = len(survey.reaching.get(number, ()))
    among = f"{len(chosen)} of {reaching} tests that reach it, {time.monotonic() - began:.0f} s"
    if catcher is None:
        print(f"{_named(number, site)}: SURVIVED ({among})", _difference(tree, site), sep="\n")
    else:
        print(f"{_named(number, site)}: caught by {catcher} ({among})")
    sys.stdout.flush()
    return catcher is not None


def _catcher(tree: Tree, chosen: list[str], took_s: float) -> str | None:
    """The test that fails, or what else shows the fault."""
    spread = ("--exitfirst", "--numprocesses", str(CORES), "--maxschedchunk", "2")
    run = tree.run(chosen, max(JUDGING_S_MIN, took_s), *spread)
    if run is None:
        return "its time: the tests hang together"
    for test, (how, _) in run.tests.items():
        if how == TIMED_OUT:
            return f"{test}, which hangs"
        if how != PASSED:
            return test
    if run.code in (0, NO_TESTS):
        return None
    lines = run.written.strip().splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return (failed or lines or ["an exit code"])[-1]


def _named(number: int, site: Site) -> str:
    return f"{number:3} {site.kind} at {site.path}:{site.line}"


def _difference(tree: Tree, site: Site) -> str:
    before = (tree.root / site.path).read_bytes()
    lines = (text.decode().splitlines() for text in (before, site.plant(before)))
    return "\n".join(difflib.unified_diff(*lines, site.path, site.path, lineterm="", n=2))


if __name__ == "__main__":
    sys.exit(main())
