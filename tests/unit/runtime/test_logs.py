"""What a program's handlers and filters of log lines raise ends nothing in the library."""

from __future__ import annotations

import ast
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from hqueue.runtime.foreign import call_foreign
from hqueue.runtime.logs import Log
from hqueue.runtime.threads import end, start
from tests.unit.runtime.test_locks import FILES

NAME = "faulty handlers"
OTHERWISE = {
    "hqueue/runtime/logs.py": "the one place",
    "hqueue/settings/loading.py": "lies below it; called by the program itself",
    "hqueue/zookeeper/member.py": "kazoo's own lines",
    "pyspark_hqueue/reading/py4j_logs.py": "py4j's own lines",
    "hqueue/cli/app.py": "sets up what a command shows",
}
ERRORS = [ValueError("faulty"), SystemExit("faulty"), KeyboardInterrupt("faulty")]


class Faulty(logging.Handler):
    """Raises what it is given, in `emit` or, as a filter does, before that."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error
        self.records: list[logging.LogRecord] = []

    def handle(self, record: logging.LogRecord) -> bool:
        self.records.append(record)
        raise self.error


@pytest.fixture(params=ERRORS, ids=lambda each: type(each).__name__)
def faulty(request: pytest.FixtureRequest) -> Iterator[Faulty]:
    handler = Faulty(request.param)
    logger = logging.getLogger(NAME)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_a_thread_goes_on_whatever_a_handler_of_log_lines_raises_and_that_is_printed(
    faulty: Faulty, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log(NAME)
    lines = [log.debug, log.info, log.warning, log.error, log.exception]
    logging.getLogger(NAME).setLevel(logging.DEBUG)
    done: list[int] = []

    def write() -> None:
        for line in lines:
            line("a line of %s", "the library")
        log.log(logging.INFO, "another")
        done.append(1)

    assert end(start(write, name="writes lines"), 30)
    assert done
    assert [each.funcName for each in faulty.records] == ["write"] * (len(lines) + 1)
    assert capfd.readouterr().err.count(f"{type(faulty.error).__name__}: faulty") == len(lines) + 1


def test_a_call_of_foreign_code_never_raises_whatever_a_handler_of_log_lines_does(
    monkeypatch: pytest.MonkeyPatch, faulty: Faulty
) -> None:
    monkeypatch.setattr("hqueue.runtime.foreign.logger", Log(NAME))
    came: list[object] = []

    def fail() -> None:
        raise SystemExit

    assert end(start(lambda: came.append(call_foreign("it", fail)), name="calls"), 30)
    assert len(came) == len(faulty.records) == 1


def test_in_the_main_thread_what_a_handler_of_a_signal_raises_passes_and_nothing_else() -> None:
    assert threading.current_thread() is threading.main_thread()

    class LateError(Exception):
        pass

    def late(number: int, frame: FrameType | None) -> None:
        raise LateError

    class Slow(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            signal.raise_signal(signal.SIGUSR1)
            return True

    logger, faulty = logging.getLogger(NAME), Faulty(ValueError("faulty"))
    before = signal.signal(signal.SIGUSR1, late)
    try:
        logger.addHandler(faulty)
        Log(NAME).warning("a line")
        logger.removeHandler(faulty)
        logger.addHandler(slow := Slow())
        with pytest.raises(LateError):
            Log(NAME).warning("a line")
        logger.removeHandler(slow)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("name", FILES)
def test_log_lines_are_written_in_one_way(name: str) -> None:
    found = [
        node
        for node in ast.walk(ast.parse(FILES[name].read_text()))
        if isinstance(node, ast.Attribute)
        and ast.unparse(node).startswith("logging.")
        and node.attr in ("getLogger", "debug", "info", "warning", "error", "exception", "log")
    ]
    assert bool(found) == (name in OTHERWISE)
