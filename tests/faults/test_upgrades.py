"""All processes are upgraded one by one and go back, each must work, and what doesn't is found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from . import upgrade_faults, versions
from .checker import Violation
from .processes import Processes
from .record_files import RecordFile
from .schedule import FAULTS, NATIVE, UPGRADED, Planned, kinds
from .upgrade_checker import UPGRADE_KINDS, Switch, check_switches
from .upgrade_faults import UpgradeFaults
from .versions import LAST_RELEASE, OLDER, PRESENT, NoOlderCodeError, older_code, unpack

ASKED = (
    "import hqueue, hqueue_workers, tests.faults.specification as s;"
    "print(hqueue.__file__, hqueue_workers.__file__, s.__file__, sep='\\n')"
)


@pytest.mark.upgrades
def test_a_process_of_the_suite_runs_the_older_product() -> None:
    code = older_code()
    found = subprocess.run(
        [code.python, "-c", ASKED],
        cwd=code.folder,
        env=code.environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split()
    for path in found[:2]:
        assert Path(path).is_relative_to(OLDER.python.parents[1] / "lib")
        assert not Path(path).is_relative_to(PRESENT.folder / "hqueue")
    assert Path(found[2]).resolve() == PRESENT.folder / "tests" / "faults" / "specification.py"
    assert not Path(found[0]).with_name("traces").exists()


def test_an_environment_of_another_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "ENVIRONMENT", tmp_path)
    with pytest.raises(NoOlderCodeError, match=f"does not have {LAST_RELEASE}"):
        older_code()
    (tmp_path / "installed").touch()
    (tmp_path / "release").write_text("0" * 40)
    with pytest.raises(NoOlderCodeError, match="make test-upgrades"):
        older_code()


def test_a_clone_without_the_history_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    with pytest.raises(NoOlderCodeError, match="git fetch --unshallow"):
        unpack(tmp_path / "source")


def test_versions_are_switched_only_in_runs_that_have_both() -> None:
    upgrades = {name for name, fault in FAULTS.items() if fault.upgrades}
    assert upgrades == {f"upgrade-{kind}" for kind in UPGRADED}
    assert not upgrades & set(kinds(NATIVE, apart=True, power=True))
    assert upgrades < set(kinds(NATIVE, apart=True, power=True, upgrades=True))


def test_a_run_upgrades_each_process_and_takes_it_back(tmp_path: Path) -> None:
    processes = Processes(1, "q", tmp_path, {})
    for kind in UPGRADED:
        assert FAULTS[f"upgrade-{kind}"].times == 2 * processes.count(kind)


def test_a_style_has_the_older_code_until_it_is_switched_and_again_after_that(
    tmp_path: Path,
) -> None:
    processes = Processes(1, "q", tmp_path, {}, older=PRESENT)
    assert processes.version("worker", "first-1") == "older"
    assert processes.switch("worker", "first-1") == "present"
    assert processes.version("worker", "first-9") == "present"
    assert processes.version("worker", "second-2") == "older"
    assert processes.switch("worker", "first-9") == "older"
    assert Processes(1, "q", tmp_path, {}).version("worker", "first-1") == "present"


class Doubles(Processes):
    """Stand for processes: each works at once, unless its name is in ``broken``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(1, "q", folder, {}, older=PRESENT)
        self.folder = folder
        self.names = ["a-1", "b-2", "c-3"]
        self.ended: list[str] = []
        self.broken: set[str] = set()

    def running(self, kind: str) -> dict[str, int]:
        return dict.fromkeys(self.names, 0)

    def count(self, kind: str) -> int:
        return 3

    def stop(self, kind: str, name: str) -> None:
        self.names.remove(name)
        self.ended.append(name)

    def replace(self, kind: str, name: str) -> str:
        style, _, number = name.rpartition("-")
        started = f"{style}-{int(number) + 3}"
        self.names.append(started)
        file = RecordFile(self.folder / f"{started}.{kind}.jsonl")
        file.write("read" if started not in self.broken else "view", [])
        return started

    def last_words(self, kind: str, name: str) -> str:
        return "it can't read a record"


@pytest.fixture
def doubles(tmp_path: Path) -> Doubles:
    return Doubles(tmp_path)


def switch(faults: UpgradeFaults, times: int) -> None:
    for number in range(times):
        faults.kinds["upgrade-reader"](Planned("upgrade-reader", 0, 0, 7 * number, 0)).mend()


def test_all_of_a_kind_are_upgraded_before_one_goes_back(doubles: Doubles) -> None:
    faults = UpgradeFaults(doubles, doubles.folder)
    switch(faults, 9)
    assert [each.version for each in faults.switches] == (
        ["present"] * 3 + ["older"] * 3 + ["present"] * 3
    )
    for first in (0, 3, 6):
        styles = {each.name[0] for each in faults.switches[first : first + 3]}
        assert styles == {"a", "b", "c"}
    assert check_switches(faults.switches) == []


def test_a_process_that_does_nothing_with_the_other_version_is_found(
    doubles: Doubles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade_faults, "WORKS_S", 0.1)
    faults = UpgradeFaults(doubles, doubles.folder)
    doubles.broken = {"b-5"}
    ended: list[bool] = []
    faults.on_incompatible = lambda: ended.append(True)
    switch(faults, 3)
    assert ended == [True]
    (violation,) = check_switches(faults.switches)
    assert violation.kind in UPGRADE_KINDS
    assert "reader b-5 did nothing with the present code" in violation.text
    assert "it can't read a record" in violation.text


def test_a_process_that_worked_is_no_violation() -> None:
    right = Switch("hub", "left-4", "older", True, 3.0)
    assert check_switches([right]) == []
    wrong = Switch("hub", "left-4", "older", False, 120.0, "no")
    assert check_switches([right, wrong]) == [
        Violation("incompatible", "hub left-4 did nothing with the older code in 120 s: no")
    ]
