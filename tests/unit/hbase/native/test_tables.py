"""Changes of tables whose answers are lost, refused or put off by the master."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest

from hqueue import Outcome, RequestRefusedError, Settings, StoreUnavailableError
from hqueue.errors import NotAQueueError, QueueEnabledError
from hqueue.hbase.native.native_store import NativeStore
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.tables import Tables
from hqueue.settings.limits import TRUNCATE_PAUSE_MS
from tests.support.awaited import LoopedSteps
from tests.support.cancelling import each_await
from tests.support.doubles import SteppedClock
from tests.support.looped import LoopThread
from tests.support.registries import Named, NamingNodes, reading
from tests.support.scripted_master import LOST, ScriptedMaster
from tests.support.scripted_server import ScriptedServer

HBASE = "org.apache.hadoop.hbase."
HOLD = HBASE + "PleaseHoldException"
STOPPED = HBASE + "exceptions.MasterStoppedException"
NOT_DISABLED = HBASE + "TableNotDisabledException"
DENIED = HBASE + "security.AccessDeniedException"
Begin = Callable[..., Tables]

CHANGES: dict[str, Callable[[Tables], None]] = {
    "CreateTable": lambda tables: tables.create("q", 1, None, {}),
    "ModifyTable": lambda tables: tables.alter("q", ttl_seconds=60, attributes={}),
    "EnableTable": lambda tables: tables.enable("q"),
    "DeleteTable": lambda tables: tables.delete("q"),
    "truncateTable": lambda tables: tables.truncate("q"),
}
"""By the method that asks for each."""

IN_LOOP: dict[str, Callable[[Tables], Coroutine[Any, Any, None]]] = {
    "CreateTable": lambda tables: tables.create.in_loop("q", 1, None, {}),
    "ModifyTable": lambda tables: tables.alter.in_loop("q", ttl_seconds=60, attributes={}),
    "EnableTable": lambda tables: tables.enable.in_loop("q"),
    "DeleteTable": lambda tables: tables.delete.in_loop("q"),
    "truncateTable": lambda tables: tables.truncate.in_loop("q"),
}


@pytest.fixture(params=["threads", "asyncio"])
def begin(request: pytest.FixtureRequest) -> Iterator[Begin]:
    """The tables of a cluster with these masters: each look at ZooKeeper finds the next. By both
    faces.
    """
    with contextlib.ExitStack() as stack:

        def run(*masters: ScriptedMaster, clock: SteppedClock | None = None) -> Tables:
            left = [
                stack.enter_context(contextlib.closing(ScriptedServer(each))).address
                for each in masters
            ]

            def read(path: str) -> bytes | None:
                address = left.pop(0) if len(left) > 1 else left[0]
                return NamingNodes(Named("id", address, address)).read(path)

            settings = Settings(operation_timeout_ms=1_000)
            store = NativeStore(settings, reading(read), clock or SteppedClock())
            tables = stack.enter_context(contextlib.closing(store)).tables
            if request.param == "threads":
                return tables
            thread = stack.enter_context(contextlib.closing(LoopThread()))
            return cast("Tables", LoopedSteps(tables, thread))

        yield run


@pytest.mark.parametrize("method", CHANGES)
def test_what_the_master_never_took_on_is_not_applied(begin: Begin, method: str) -> None:
    master = ScriptedMaster("q", {method: [HOLD]})
    with pytest.raises(StoreUnavailableError) as caught:
        CHANGES[method](begin(master))
    assert caught.value.outcome is Outcome.NOT_APPLIED
    assert master.methods.count(method) > 1


@pytest.mark.parametrize("last", [HOLD, DENIED])
@pytest.mark.parametrize("method", CHANGES)
def test_what_the_master_took_on_is_unknown_until_it_says_what_came_of_it(
    begin: Begin, method: str, last: str
) -> None:
    results = [None, HOLD] if method == "truncateTable" else [HOLD]  # It disables first.
    master = ScriptedMaster("q", {method: [None, last], "getProcedureResult": results})
    with pytest.raises((StoreUnavailableError, RequestRefusedError)) as caught:
        CHANGES[method](begin(master))
    assert caught.value.outcome is Outcome.UNKNOWN


def test_a_master_that_is_stopping_is_left_for_the_next(begin: Begin) -> None:
    stopping, active = (
        ScriptedMaster("q", {"GetTableDescriptors": [each]}) for each in (STOPPED, None)
    )
    tables = begin(stopping, active)
    assert tables.describe("q").name == "q"
    assert stopping.methods == ["GetTableDescriptors"]


@pytest.mark.parametrize("method", CHANGES)
def test_what_the_master_says_to_have_failed_is_not_applied(begin: Begin, method: str) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        CHANGES[method](begin(ScriptedMaster("q", result=DENIED)))
    assert caught.value.outcome is Outcome.NOT_APPLIED


REQUESTS = {"CreateTable": pb.CreateTableRequest, "ModifyTable": pb.ModifyTableRequest}


@pytest.mark.parametrize("lost", ["the first answer", "what came of it"])
@pytest.mark.parametrize("method", REQUESTS)
def test_what_is_asked_for_again_is_done_once(begin: Begin, method: str, lost: str) -> None:
    fate: dict[str, list[str | None]] = (
        {method: [LOST, None]}
        if lost == "the first answer"
        else {"getProcedureResult": [HOLD, None]}
    )
    master = ScriptedMaster("q", fate)
    CHANGES[method](begin(master))
    requests = [
        REQUESTS[method].FromString(each.message) for each in master.asked if each.method == method
    ]
    assert len(requests) == 2
    assert len({(each.nonce_group, each.nonce) for each in requests}) == 1


def test_an_alteration_that_failed_is_made_of_what_the_queue_is_by_then(begin: Begin) -> None:
    master = ScriptedMaster("q", {"ModifyTable": [HOLD, None]})
    CHANGES["ModifyTable"](begin(master))
    assert master.methods.count("ModifyTable") == 2
    assert master.methods.count("GetTableDescriptors") == 2


@pytest.mark.parametrize("said", ["at once", "in the end"])
def test_a_queue_that_somebody_enables_while_it_is_truncated_is_not_said_to_be_truncated(
    begin: Begin, said: str
) -> None:
    master = ScriptedMaster("q", {"truncateTable": [NOT_DISABLED if said == "at once" else None]})

    class Overtaken(SteppedClock):
        """Somebody enables the queue before it is truncated."""

        def sleep_ms(self, duration_ms: float) -> None:
            super().sleep_ms(duration_ms)
            if duration_ms == TRUNCATE_PAUSE_MS:
                master.result = NOT_DISABLED

    with pytest.raises(QueueEnabledError) as caught:
        begin(master, clock=Overtaken()).truncate("q")
    assert caught.value.outcome is Outcome.NOT_APPLIED


@pytest.mark.parametrize("method", ["EnableTable", "DisableTable", "DeleteTable"])
def test_a_table_that_is_no_queue_is_left_alone_however_often_the_master_fails(
    begin: Begin, method: str
) -> None:
    changes = {**CHANGES, "DisableTable": lambda tables: tables.disable("q")}
    master = ScriptedMaster("q", {"GetTableDescriptors": [HOLD, LOST, None]}, is_queue=False)
    with pytest.raises(NotAQueueError):
        changes[method](begin(master))
    assert method not in master.methods


@pytest.mark.parametrize("method", CHANGES)
def test_one_that_is_cancelled_at_any_moment_harms_no_later_one(method: str) -> None:
    async def use(cut: Callable[..., Any]) -> None:
        master = ScriptedMaster("q")
        with contextlib.closing(ScriptedServer(master)) as server:
            named = NamingNodes(Named("id", server.address, server.address))
            with contextlib.closing(NativeStore(Settings(), named.asked, SteppedClock())) as store:
                await cut(IN_LOOP[method](store.tables))
                await IN_LOOP[method](store.tables)
                assert master.methods[-1] == "getProcedureResult"

    assert asyncio.run(each_await(use)) >= 3
