"""What a table's descriptor says of a queue, and when it is none."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hqueue import Settings
from hqueue.errors import (
    HQueueError,
    NotAQueueError,
    Outcome,
    QueueEnabledError,
    QueueNotFoundError,
    StoreUnavailableError,
)
from hqueue.hbase.schema import LOG, MESSAGE
from hqueue.hbase.thrift.tables import Tables, _description
from hqueue.runtime.loop import blocking
from hqueue.runtime.steps import Wait
from hqueue.settings.limits import PARTITIONS_MAX, TTL_SECONDS_MAX
from tests.support.doubles import SteppedClock


def descriptor(
    partitions: bytes | None = b"8",
    *,
    families: tuple[bytes, ...] = (MESSAGE, LOG),
    ttl: int | None = 3_600,
    compression: bytes | None = None,
    **attributes: bytes,
) -> Any:
    """A descriptor as a gateway gives it."""
    values = {key.replace("__", ".").encode(): value for key, value in attributes.items()}
    if partitions is not None:
        values[b"hqueue.partitions"] = partitions
    column = {} if compression is None else {b"COMPRESSION": compression}
    return SimpleNamespace(
        tableName=SimpleNamespace(ns=b"default", qualifier=b"events"),
        attributes=values,
        columns=[
            SimpleNamespace(name=name, timeToLive=ttl, attributes=column) for name in families
        ],
    )


@pytest.mark.parametrize("partitions", [b"1", b"8", b"%d" % PARTITIONS_MAX])
def test_a_table_with_bodies_and_a_number_of_partitions_is_a_queue(partitions: bytes) -> None:
    found = _description(descriptor(partitions), True)
    assert (found.name, found.partitions, found.ttl_seconds) == ("events", int(partitions), 3_600)


@pytest.mark.parametrize(
    "partitions", [None, b"", b"0", b"-1", b"x", b"8 ", b"%d" % (PARTITIONS_MAX + 1), b"123456"]
)
def test_a_table_without_a_number_of_partitions_that_can_be_is_no_queue(
    partitions: bytes | None,
) -> None:
    with pytest.raises(NotAQueueError):
        _description(descriptor(partitions), True)


def test_a_table_without_bodies_is_no_queue() -> None:
    with pytest.raises(NotAQueueError):
        _description(descriptor(families=(LOG,)), True)


@pytest.mark.parametrize("ttl", [None, TTL_SECONDS_MAX])
def test_what_never_expires_has_no_time_to_live(ttl: int | None) -> None:
    assert _description(descriptor(ttl=ttl), None).ttl_seconds is None


def test_compression_is_the_family_s_and_none_where_it_says_nothing() -> None:
    assert _description(descriptor(), True).attributes["compression"] == "NONE"
    assert _description(descriptor(compression=b"ZSTD"), True).attributes["compression"] == "ZSTD"


def test_what_an_operator_set_past_hqueue_is_as_hbase_has_it() -> None:
    odd = descriptor(compression=b"\xffodd")
    assert _description(odd, True).attributes["compression"] == "\\xffodd"


LOST = StoreUnavailableError("lost", outcome=Outcome.UNKNOWN)
AWAY = StoreUnavailableError("away", outcome=Outcome.NOT_APPLIED)


class Gateways:
    """Gateways to a cluster with one table, whose calls fail as a test says.

    Args:
        fails: for each method the errors of its first calls.
    """

    settings = Settings(operation_timeout_ms=1_000)

    def __init__(self, fails: dict[str, list[HQueueError]]) -> None:
        self.fails = fails
        self.calls: list[str] = []
        self.described = descriptor()
        self.described.attributes[b"hqueue.format"] = b"1"

    def call(self, _: object, method: str, *__: object, **___: object) -> Any:
        self.calls.append(method)
        if self.fails.get(method):
            raise self.fails[method].pop(0)
        return self.described

    def blocking(self, request: Callable[[], object]) -> Wait:
        return blocking(request)


def tables_of(gateways: Gateways) -> Tables:
    return Tables(gateways, SteppedClock())  # type: ignore[arg-type]


def enabled() -> HQueueError:
    return QueueEnabledError("the queue must be disabled first")


def test_a_queue_that_somebody_enables_while_it_is_truncated_is_not_said_to_be_truncated() -> None:
    for before in ([], [AWAY]):
        with pytest.raises(QueueEnabledError):
            tables_of(Gateways({"truncateTable": [*before, enabled()]})).truncate("q")


def test_a_truncation_whose_answer_was_lost_is_known_by_the_queue_that_is_enabled() -> None:
    gateways = Gateways({"truncateTable": [LOST, AWAY, enabled()]})
    tables_of(gateways).truncate("q")
    assert gateways.calls.count("truncateTable") == 3


def test_a_deletion_counts_as_done_only_where_an_answer_was_lost() -> None:
    gone = QueueNotFoundError("there is no such queue")
    tables_of(Gateways({"deleteTable": [LOST, gone]})).delete("q")
    with pytest.raises(QueueNotFoundError):
        tables_of(Gateways({"deleteTable": [AWAY, gone]})).delete("q")


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("enableTable", lambda tables: tables.enable("q")),
        ("disableTable", lambda tables: tables.disable("q")),
        ("deleteTable", lambda tables: tables.delete("q")),
    ],
)
def test_a_table_that_is_no_queue_is_left_alone_however_often_a_gateway_fails(
    method: str, change: Callable[[Tables], None]
) -> None:
    gateways = Gateways({"getTableDescriptor": [AWAY, LOST]})
    del gateways.described.attributes[b"hqueue.format"]
    with pytest.raises(NotAQueueError):
        change(tables_of(gateways))
    assert method not in gateways.calls
