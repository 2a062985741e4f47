"""Masters, some of them dead, on standby, hanging, senseless or out of touch."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from hqueue import ClosedError, Outcome, RequestRefusedError, Settings, StoreUnavailableError
from hqueue.hbase.native.masters_registry import MastersRegistry
from hqueue.hbase.native.protocol import pb
from hqueue.hbase.native.servers import Servers
from hqueue.hbase.native.wire import LENGTH, REGISTRY
from hqueue.settings.addresses import Address
from tests.support.registries import AskedRegistry, Named, NamingMaster
from tests.support.scripted_server import Asked, ScriptedServer, answer, refusal

NAMED = Named("0f3e-id", Address("region1", 16_020), Address("master1", 16_000))
STALE = Named("0f3e-id", Address("gone", 16_020), Address("dead", 16_000))
STARTING = Named(None, None, None)
Script = Callable[[Asked], list[bytes]]


def ending(asked: Asked) -> list[bytes]:
    raise ConnectionError("it dies")


HARMED: dict[str, Script] = {
    "hangs": lambda asked: [],
    "dies": ending,
    "starts": NamingMaster(STARTING),
    "refuses": lambda asked: [refusal(asked, "org.apache.hadoop.hbase.X", final=True)],
    "runs not yet": lambda asked: [
        refusal(asked, "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException")
    ],
    "is none": lambda asked: [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
    "answers nonsense": lambda asked: [answer(asked, pb.GenericExceptionMessage(message="?"))],
    "answers nothing": lambda asked: [LENGTH.pack(0)],
    "names no host": NamingMaster(Named("", Address("", 1), Address("a..b", 1))),
}


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def serve(stack: contextlib.ExitStack, script: Script) -> ScriptedServer:
    return stack.enter_context(contextlib.closing(ScriptedServer(script)))


def registry_of(
    stack: contextlib.ExitStack, *masters: Address, request_timeout_ms: int = 1_000
) -> AskedRegistry:
    settings = Settings(hbase_masters=masters, request_timeout_ms=request_timeout_ms)
    servers = stack.enter_context(contextlib.closing(Servers(settings)))
    return AskedRegistry(servers, MastersRegistry(settings, settings.hbase_masters))


def nobody() -> Address:
    """Where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return Address("127.0.0.1", taken.getsockname()[1])


def test_one_of_many_is_enough_and_is_the_first_to_be_asked_again(
    stack: contextlib.ExitStack,
) -> None:
    others = [serve(stack, script) for script in HARMED.values()]
    good = NamingMaster(NAMED)
    last = serve(stack, good)
    masters = (nobody(), *(each.address for each in others), last.address)
    registry = registry_of(stack, *masters, request_timeout_ms=10_000)
    assert registry.meta() == NAMED.meta
    for each in others:
        each.close()
    assert registry.cluster_id() == NAMED.cluster_id
    assert registry.master() == NAMED.master
    assert good.asked == ["GetMetaRegionLocations", "GetClusterId", "GetActiveMaster"]
    assert last.services == [REGISTRY]


@pytest.mark.parametrize("kind", HARMED)
def test_none_that_is_of_use_is_an_error_in_time(stack: contextlib.ExitStack, kind: str) -> None:
    servers = [serve(stack, HARMED[kind]) for _ in range(3)]
    registry = registry_of(
        stack, *(each.address for each in servers), nobody(), request_timeout_ms=300
    )
    for ask in (registry.meta, registry.master, registry.cluster_id):
        began_s = time.monotonic()
        with pytest.raises(StoreUnavailableError) as caught:
            ask()
        assert time.monotonic() - began_s < 5
        assert caught.value.outcome is Outcome.NOT_APPLIED


def test_masters_that_all_refuse_are_not_asked_again_and_again(
    stack: contextlib.ExitStack,
) -> None:
    servers = [serve(stack, HARMED["refuses"]) for _ in range(2)]
    registry = registry_of(stack, *(each.address for each in servers))
    with pytest.raises(RequestRefusedError):
        registry.meta()


def test_once_what_it_named_was_doubted_another_master_is_asked_first(
    stack: contextlib.ExitStack,
) -> None:
    out_of_touch, good = NamingMaster(STALE), NamingMaster(NAMED)
    servers = [serve(stack, each) for each in (out_of_touch, good)]
    registry = registry_of(stack, *(each.address for each in servers))
    for ask, doubt, stale, named in (
        (registry.meta, registry.doubt_meta, STALE.meta, NAMED.meta),
        (registry.master, registry.doubt_master, NAMED.master, STALE.master),
    ):
        first = ask()
        assert first == stale
        doubt(first)
        assert ask() == named


def test_a_master_that_starts_again_is_asked_by_a_new_connection(
    stack: contextlib.ExitStack,
) -> None:
    server = serve(stack, NamingMaster(NAMED))
    registry = registry_of(stack, server.address)
    assert registry.cluster_id() == NAMED.cluster_id
    server.break_connections()
    with contextlib.suppress(StoreUnavailableError):
        registry.cluster_id()  # The end may not have been seen before it was asked.
    assert registry.cluster_id() == NAMED.cluster_id
    assert len(server.services) == 2


def test_closing_while_it_asks_leaves_what_it_is_asked_for_not_applied(
    stack: contextlib.ExitStack,
) -> None:
    master = NamingMaster(NAMED)

    def close(asked: Asked) -> list[bytes]:
        servers.close()
        return master(asked)

    settings = Settings(hbase_masters=serve(stack, close).address)
    servers = Servers(settings)
    with pytest.raises(ClosedError) as caught:
        AskedRegistry(servers, MastersRegistry(settings, settings.hbase_masters)).master()
    assert caught.value.outcome is Outcome.NOT_APPLIED


def test_it_asks_nobody_once_the_store_is_closed(stack: contextlib.ExitStack) -> None:
    master = NamingMaster(NAMED)
    settings = Settings(hbase_masters=serve(stack, master).address)
    servers = Servers(settings)
    registry = AskedRegistry(servers, MastersRegistry(settings, settings.hbase_masters))
    servers.close()
    with pytest.raises(ClosedError):
        registry.meta()
    assert master.asked == []
