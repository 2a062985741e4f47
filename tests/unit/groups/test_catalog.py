"""Which queues there are for a group: looked for in the background."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hqueue.groups.catalog import Catalog, QueueCatalog, Selection
from hqueue.metadata import PartitionKey
from tests.support.waiting import wait_for

LONG_MS = 3_600_000.0


def test_what_could_not_be_taken_in_is_told_again_though_nothing_changes_any_more() -> None:
    queues = [SimpleNamespace(name="a", partitions=1)]
    cluster = SimpleNamespace(
        tables=SimpleNamespace(list=lambda: list(queues)), locate=lambda *_: []
    )
    told: list[Catalog] = []
    answers: list[Any] = [SystemExit(1), False, True]

    def on_change(found: Catalog) -> bool:
        told.append(found)
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return cast("bool", answer)

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
