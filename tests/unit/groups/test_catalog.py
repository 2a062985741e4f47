"""Which queues there are for a group: looked for in the background."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from hqueue.groups.catalog import Catalog, QueueCatalog, Selection
from hqueue.metadata import PartitionKey
from hqueue.runtime.loop import blocking
from hqueue.runtime.steps import Work
from tests.support.waiting import wait_for

LONG_MS = 3_600_000.0


def asking(answer: Callable[..., object]) -> SimpleNamespace:
    """A method that is asked by its face for work."""
    return SimpleNamespace(asked=lambda *args: blocking(partial(answer, *args)))


def test_what_could_not_be_taken_in_is_told_again_though_nothing_changes_any_more() -> None:
    queues = [SimpleNamespace(name="a", partitions=1)]
    cluster = SimpleNamespace(
        tables=SimpleNamespace(list=asking(lambda: list(queues))), locate=asking(lambda *_: [])
    )
    told: list[Catalog] = []
    answers: list[Any] = [SystemExit(1), False, True]

    def on_change(found: Catalog) -> Work[Any, bool]:
        told.append(found)
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return cast("bool", answer)
        yield

    catalog = QueueCatalog(cast("Any", cluster), on_change, LONG_MS)
    try:
        catalog.select(Selection(frozenset({"a", "b"})))
        queues.append(SimpleNamespace(name="b", partitions=1))
        catalog.refresh()
        wait_for(lambda: not answers, "it is reported until it is taken in")
        assert [set(each.partitions) for each in told] == [
            {PartitionKey("a", 0), PartitionKey("b", 0)}
        ] * 3
    finally:
        catalog.close()
