"""Programs that SIGKILL ends at a given point, with all that they started."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.waiting import wait_for

from ..drivers import Driver

__all__ = ["Killing", "command", "data_files"]


def command(*arguments: str) -> str:
    """A program that is a command line of `hqueue`."""
    return f"from hqueue.cli import main\nraise SystemExit(main({[*arguments]!r}))\n"


@dataclasses.dataclass(frozen=True)
class Killing:
    """Runs a program again and again.

    Args:
        log: where its output goes.
        program: its text.
        conf: settings of a session of Spark, which the program finds as `spark`; none if empty.
    """

    log: Path
    program: str
    conf: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def after(self, call: str) -> None:
        """Kill it when a function has returned: `package.module:Class.function`."""
        with self._start(call=call) as driver:
            assert driver.was_killed(timeout_s=400), driver.said()

    def when_more_than(self, done: Callable[[], int]) -> None:
        """Kill it when it has done more than was done before."""
        before = done()
        with self._start() as driver:
            wait_for(lambda: done() > before or driver.ended, "it gets on", timeout_s=400)
            assert not driver.ended, driver.said()

    def _start(self, **at: object) -> Driver:
        given = {"program": self.program, "conf": dict(self.conf), **at}
        return Driver.of_program("killed", self.log, **given)


def data_files(table: Path) -> int:
    """How many data files a table has in its folder, committed or not."""
    return len([*table.rglob("part-*.parquet"), *table.rglob("data/**/*.parquet")])
