"""The doctor examines the settings of workers and hubs as these read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hqueue.cli.app import run
from hqueue.cli.session import Session

FAULTY = """
[hub]
quotas = "*:calls=fast"
qutoas = "x"
authorizer = "ruless"
administrators = "op s"
[worker]
authoriser = "rules"
"""


@pytest.mark.parametrize("faulty", [False, True])
def test_each_wrong_setting_of_a_role_is_named_with_its_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    faulty: bool,
) -> None:
    path = tmp_path / "hqueue.toml"
    path.write_text(FAULTY if faulty else '[hub]\nauthorizer = "acl"\n')
    monkeypatch.setenv("HQUEUE_CONFIG", str(path))
    monkeypatch.setenv("HQUEUE_LOCAL_HOME", str(tmp_path))
    given = ["--zookeeper", "127.0.0.1:1", "--operation-timeout-ms", "500"]
    with Session() as session:
        assert run([*given, "doctor"], session) == 1, "ZooKeeper is away"
    lines = [each.split("\t") for each in capsys.readouterr().out.splitlines()]
    wrong = [each[2] for each in lines if each[:2] == ["settings", "wrong"]]
    if not faulty:
        assert wrong == []
        return
    assert len(wrong) == 5
    for line, setting in ((3, "quotas"), (4, "qutoas"), (5, "authorizer"), (6, "administrators")):
        assert any(setting in each and f"line={line}]" in each for each in wrong), setting
    assert any("authoriser" in each and "line=8]" in each for each in wrong)


def test_a_wrong_setting_of_the_connection_hides_none_of_a_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hqueue.toml"
    path.write_text('zookeper = "host:2181"\n' + FAULTY)
    monkeypatch.setenv("HQUEUE_CONFIG", str(path))
    monkeypatch.setenv("HQUEUE_LOCAL_HOME", str(tmp_path))
    with Session() as session:
        assert run(["doctor"], session) == 1
    found = capsys.readouterr().out.splitlines()
    assert len(found) == 6
    assert "zookeper" in found[0]
    path.write_text("[hub\n")
    with Session() as session:
        assert run(["doctor"], session) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1, "the file is named once"
