"""What of an error Spark gets to show."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hqueue import InvalidInputError
from pyspark_hqueue.reading.plain_errors import main_is_of_spark, plain_errors, plain_iteration


@pytest.fixture
def spark_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that Spark began."""
    main = SimpleNamespace(__spec__=SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "tracebacklimit", 1_000, raising=False)


def failing(number: int = 1) -> int:
    try:
        raise OSError("the cause")
    except OSError as exc:
        raise InvalidInputError("what happened", number=number) from exc


def iterating() -> Iterator[int]:
    yield 1
    failing(2)


def listed() -> list[int]:
    return list(plain_iteration(iterating)())


def shown(exc: BaseException) -> str:
    """The text that PySpark sends to the JVM."""
    return "".join(
        traceback.TracebackException(type(exc), exc, exc.__traceback__, compact=True).format()
    )


@pytest.mark.usefixtures("spark_worker")
@pytest.mark.parametrize(("function", "number"), [(plain_errors(failing), 1), (listed, 2)])
def test_spark_gets_one_line_of_an_error(function: object, number: int) -> None:
    with pytest.raises(InvalidInputError) as caught:
        function()  # type: ignore[operator]
    text = f"hqueue.errors.InvalidInputError: what happened [number={number}]\n"
    assert shown(caught.value) == text


def test_elsewhere_an_error_has_the_frames_of_the_program_and_neither_ours_nor_causes() -> None:
    with pytest.raises(InvalidInputError) as caught:
        plain_errors(failing)()
    text = shown(caught.value)
    assert "the cause" not in text
    assert "in failing" not in text
    assert "in test_elsewhere" in text
    assert not hasattr(sys, "tracebacklimit")


@pytest.mark.usefixtures("spark_worker")
def test_other_errors_keep_their_frames() -> None:
    def wrong() -> None:
        raise AssertionError("a bug")

    with pytest.raises(AssertionError) as caught:
        plain_errors(wrong)()
    assert "in wrong" in shown(caught.value)


def test_a_process_is_sparks_if_its_program_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_of_spark(name: str | None, module: str = "") -> bool:
        spec = None if name is None else SimpleNamespace(name=name)
        monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=spec))
        return main_is_of_spark(module)

    assert is_of_spark("pyspark.daemon")
    assert is_of_spark("pyspark.sql.worker.x", "sql.worker.x")
    assert not is_of_spark("pyspark.daemon", "sql.worker.x")
    assert not is_of_spark("pyspark_hqueue.jobs.archive")
    assert not is_of_spark(None)
