"""Each version goes on with what the other one left; a planted fault shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.tree import Tree

from .planted_bugs import BUGS
from .versions import ENVIRONMENT, OLDER, PRESENT, Code, older_code

(BUG,) = (bug for bug in BUGS if bug.name == "records")

pytestmark = pytest.mark.upgrades

PROGRAM = Path(__file__).with_name("exchange.py").read_text()
OLDER_WITH_ITS_TESTS = Code(OLDER.python, ENVIRONMENT / "source")
TIMEOUT_S = 300
FOUND = "a record has a version that this release does not know"


def run(code: Code, *arguments: object) -> subprocess.CompletedProcess[str]:
    older_code()
    return subprocess.run(
        [code.python, "-c", PROGRAM, *map(str, arguments)],
        cwd=code.folder,
        env=code.environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def met(code: Code, *arguments: object) -> dict[str, Any]:
    """What a version met that must have ended well."""
    ended = run(code, *arguments)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


@pytest.mark.parametrize(
    ("first", "second"),
    [(PRESENT, OLDER_WITH_ITS_TESTS), (OLDER_WITH_ITS_TESTS, PRESENT)],
    ids=["present to older", "older to present"],
)
def test_a_version_goes_on_with_what_the_other_one_left(
    tmp_path: Path, first: Code, second: Code
) -> None:
    path = tmp_path / "left.json"
    taken = ["0", "1", "2", "3"]
    assert met(first, "leave", path) == {"group": taken, "share group": taken}
    found = met(second, "continue", path)
    assert found["group"] == ["4"]  # The rest of its batch.
    assert found["share group"] == ["4", "5", "6", "7"]
    assert found["subscribers"] == ["s"]
    *messages, letter = found["scanned"]
    assert messages[:5] == [[str(each), None, []] for each in range(5)]
    assert messages[5:] == [[str(each), "k", [["h", "v"]]] for each in range(5, 10)]
    assert json.loads(letter[0].partition("\n")[0])["group"] == "w"


def test_planted_records_of_a_newer_version_are_found(tmp_path: Path) -> None:
    tree = Tree(tmp_path, 0)
    tree.write(BUG.path, BUG.plant((tree.root / BUG.path).read_text()).encode())
    path = tmp_path / "left.json"
    steps = ("leave", "continue")
    alone = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, step, path],
            cwd=tree.root,
            env=tree.environment(),
            stdout=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=True,
        )
        for step in steps
    ]
    assert json.loads(alone[1].stdout)["group"] == ["4"]  # Alone the planted code is right.
    ended = run(OLDER_WITH_ITS_TESTS, "continue", path)
    assert ended.returncode != 0
    assert FOUND in ended.stderr
