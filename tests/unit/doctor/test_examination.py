"""The examination as a whole: wrong settings, checks that hang or fail, the command."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hqueue
from hqueue.doctor import Finding, Level, Subject, examine
from hqueue.doctor.findings import FACT_LENGTH_MAX, of_error, ok
from hqueue.errors import (
    AuthenticationError,
    Outcome,
    RequestRefusedError,
    SettingsError,
    StoreUnavailableError,
)
from tests.support.command_line import run_here


def bounded() -> hqueue.Settings:
    return hqueue.Settings(operation_timeout_ms=300)


def well(subject: Subject) -> Iterator[Finding]:
    yield ok("well", f"bounded by {subject.settings.operation_timeout_ms} ms")


def test_wrong_settings_end_it() -> None:
    def load() -> hqueue.Settings:
        raise SettingsError("unknown setting", setting="gatways", file="hqueue.toml", line=3)

    [found] = examine(load, (("well", well),))
    assert (found.check, found.level) == ("settings", Level.WRONG)
    assert found.found == "unknown setting [setting=gatways, file=hqueue.toml, line=3]"


def test_a_check_that_hangs_is_left_and_the_others_go_on() -> None:
    over = threading.Event()

    def hangs(subject: Subject) -> Iterator[Finding]:
        yield ok("hangs", "so far")
        over.wait(30)

    begun_s = time.monotonic()
    found = [*examine(bounded, (("hangs", hangs), ("well", well)))]
    over.set()
    assert time.monotonic() - begun_s < 10
    assert [(each.check, each.level) for each in found] == [
        ("settings", Level.OK), ("hangs", Level.OK), ("hangs", Level.WRONG), ("well", Level.OK),
    ]  # fmt: skip
    assert found[-1].found == "bounded by 150 ms"


def test_an_error_in_a_check_is_a_finding() -> None:
    def fails(subject: Subject) -> Iterator[Finding]:
        yield ok("fails", "so far")
        raise StoreUnavailableError("no answer", outcome=Outcome.NOT_APPLIED)

    found = [*examine(bounded, (("fails", fails), ("well", well)))]
    assert [each.level for each in found] == [Level.OK, Level.OK, Level.WRONG, Level.OK]


def test_each_kind_of_error_has_its_advice() -> None:
    errors = (
        AuthenticationError("refused"),
        RequestRefusedError("refused"),
        StoreUnavailableError("away", outcome=Outcome.NOT_APPLIED),
        SettingsError("wrong"),
    )
    advices = [of_error("check", error).advice for error in errors]
    assert len({*advices}) == len(errors)
    assert all(advices)


def test_long_facts_are_cut() -> None:
    error = RequestRefusedError("refused", answer="x" * 10_000 + "\nand more")
    assert len(of_error("check", error).found) < FACT_LENGTH_MAX + 50


def test_the_command_says_what_is_wrong_and_fails(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "HQUEUE_LOCAL_HOME": str(tmp_path), "COLUMNS": "120"}
    away = {"HQUEUE_ZOOKEEPER": "127.0.0.1:1", "HQUEUE_OPERATION_TIMEOUT_MS": "500"}
    code, out, err = run_here(["doctor", "--json", "--hubs", "127.0.0.1:1"], b"", home | away)
    lines = [*map(json.loads, out.splitlines())]
    assert code == 1
    assert all({*line} == {"check", "state", "found", "advice"} for line in lines)
    states = {line["check"]: line["state"] for line in lines}
    assert states["settings"] == "ok"
    assert states["zookeeper"] == states["hbase"] == states["hubs"] == "wrong"
    assert all(line["advice"] for line in lines if line["state"] != "ok")
    assert f"{sum(line['state'] == 'wrong' for line in lines)} wrong" in err


def test_the_command_names_the_line_of_a_wrong_setting(tmp_path: Path) -> None:
    settings = tmp_path / "hqueue.toml"
    settings.write_text('zookeper = "host:2181"')
    code, out, _ = run_here(["doctor"], b"", {"HQUEUE_CONFIG": str(settings)})
    assert code == 1
    assert b"line=1" in out
