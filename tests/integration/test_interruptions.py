"""A handler of a signal that raises, at every place of an operation where CPython may call it, and
at every line: what comes after it works, in a bounded time, and the log is right. In `make check`
it raises at some of these places.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue import local
from hqueue.client import Client
from tests.support import interrupted, pythons
from tests.support.backends import GatewayBackend, NativeBackend
from tests.support.interrupted import (
    BOUNDS,
    SCANS,
    Connect,
    EachPlace,
    by_zookeeper,
    in_memory,
    natively,
)
from tests.support.interrupting import each_interruption, each_line
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.gateway import GatewayPair
from tests.support.raw import RawHBase

PROGRAM_S = 300
OTHERS = [each for each in pythons.versions() if each != pythons.PRESENT]


@pytest.fixture(autouse=True)
def _nobody_else_joins() -> Iterator[None]:
    with interrupted.nobody_else_joining():
        yield


@contextlib.contextmanager
def by_gateways() -> Iterator[Client]:
    cluster = MemoryCluster()
    with (
        contextlib.closing(GatewayPair(cluster)) as pair,
        GatewayBackend(pair, cluster).connect(**BOUNDS) as client,
    ):
        yield client


@pytest.fixture(params=[natively, by_gateways, in_memory])
def connect(request: pytest.FixtureRequest) -> Connect:
    kind: Connect = request.param
    return kind


SOME = 4
"""Of so many places one is tried in `make check`."""

EVERYWHERE = pytest.mark.thorough("`make check` has it at some of these places")


def _ways(every: int) -> list[tuple[str, EachPlace, list[pytest.MarkDecorator]]]:
    """At each n-th place that calls and waits make, and at every line; and at some of these."""
    return [
        (prefix + name, functools.partial(each, every=step * share), marks)
        for each, step, name in ((each_interruption, every, "calls"), (each_line, 1, "lines"))
        for share, prefix, marks in ((1, "", [EVERYWHERE]), (SOME, "some ", []))
    ]


def interrupted_everywhere(*, every: int = 1) -> pytest.MarkDecorator:
    """Interrupt at each n-th place that calls and waits make, and at every line."""
    cases = [pytest.param(way, id=name, marks=marks) for name, way, marks in _ways(every)]
    return pytest.mark.parametrize("each_place", cases)


def interrupted_also_over_zookeeper(*connects: Connect, every: int) -> pytest.MarkDecorator:
    """As `interrupted_everywhere`; and at some places where requests go to ZooKeeper by kazoo,
    which takes a while to join a group.
    """
    few = functools.partial(each_interruption, every=47)
    cases = [
        pytest.param(connect, way, id=f"{connect.__name__}-{name}", marks=marks)
        for connect in connects
        for name, way, marks in _ways(every)
    ]
    by_kazoo = pytest.param(by_zookeeper, few, id="by_zookeeper-calls")
    return pytest.mark.parametrize(("connect", "each_place"), [*cases, by_kazoo])


@interrupted_everywhere()
def test_puts_go_on_after_one_was_interrupted_anywhere(
    connect: Connect, each_place: EachPlace
) -> None:
    interrupted.puts(connect, each_place)


@interrupted_everywhere(every=3)
def test_a_first_put_that_was_interrupted_anywhere_is_no_hindrance(
    connect: Connect, each_place: EachPlace
) -> None:
    interrupted.first_puts(connect, each_place)


@interrupted_everywhere()
def test_a_producer_goes_on_after_a_send_was_interrupted_anywhere(
    connect: Connect, each_place: EachPlace
) -> None:
    interrupted.sends(connect, each_place)


@interrupted_everywhere(every=2)
def test_what_was_sent_is_written_after_waits_for_it_were_interrupted_anywhere(
    connect: Connect, each_place: EachPlace
) -> None:
    interrupted.flushes(connect, each_place)


@interrupted_also_over_zookeeper(natively, in_memory, every=2)
def test_a_client_whose_close_was_interrupted_anywhere_is_closed_again(
    connect: Connect, each_place: EachPlace
) -> None:
    interrupted.closes_of_clients(connect, each_place)


@interrupted_also_over_zookeeper(natively, in_memory, every=2)
def test_a_consumer_goes_on_after_it_was_interrupted_anywhere_and_misses_nothing(
    connect: Connect, each_place: EachPlace
) -> None:
    interrupted.polls_and_commits(connect, each_place)


@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize("by", interrupted.TAKEN_BY)
@interrupted_everywhere()
def test_a_consumer_that_was_interrupted_anywhere_hands_nothing_out_again(
    by: str, left: int, each_place: EachPlace
) -> None:
    interrupted.handouts(in_memory, each_place, by=by, left=left)


@pytest.mark.parametrize("handler", [interrupted.raises_own, interrupted.commits_and_raises])
@pytest.mark.parametrize("by", interrupted.TAKEN_BY)
@interrupted_everywhere()
def test_a_consumer_misses_nothing_whatever_a_handler_raises_and_if_it_commits_before(
    by: str,
    handler: Callable[[hqueue.Consumer, int, object], None],
    each_place: EachPlace,
) -> None:
    interrupted.handouts(in_memory, each_place, by=by, left=2, handler=handler)


@interrupted_also_over_zookeeper(in_memory, every=3)
def test_a_closing_consumer_that_was_interrupted_is_closed_again_and_holds_up_nobody(
    connect: Connect, each_place: EachPlace
) -> None:
    interrupted.closes_of_consumers(connect, each_place)


@interrupted_also_over_zookeeper(in_memory, every=7)
def test_a_subscription_that_was_interrupted_anywhere_is_there_or_not_and_the_next_one_is_served(
    connect: Connect, each_place: EachPlace, caplog: pytest.LogCaptureFixture
) -> None:
    interrupted.subscriptions(connect, each_place)
    assert "another program removed" not in caplog.text


@pytest.mark.parametrize("options", SCANS)
@interrupted_everywhere()
def test_a_scan_that_was_interrupted_anywhere_says_so_and_never_seems_to_be_at_its_end(
    options: dict[str, object], each_place: EachPlace
) -> None:
    interrupted.scans(each_place, **options)


@pytest.mark.parametrize("options", SCANS)
@interrupted_everywhere()
def test_a_scan_that_an_error_of_a_handler_s_own_calls_interrupted_says_so(
    options: dict[str, object], each_place: EachPlace
) -> None:
    raises = functools.partial(interrupted.raises_own, None)
    interrupted.scans(functools.partial(each_place, handle=raises), **options)


@interrupted_everywhere()
def test_requests_side_by_side_go_on_after_their_caller_was_interrupted_anywhere(
    each_place: EachPlace,
) -> None:
    interrupted.requests_side_by_side(each_place)


@pytest.mark.thorough("what each version of Python has for itself are the jumps of its bytecode")
@pytest.mark.parametrize("version", OTHERS)
def test_other_pythons_go_on_after_interruptions_too(version: str) -> None:
    command = [pythons.environment_of(version), "-m", "tests.support.interrupted", "5"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HQUEUE_")}
    subprocess.run(command, cwd=pythons.ROOT, env=environment, check=True, timeout=PROGRAM_S)


@interrupted_everywhere(every=4)
def test_puts_to_a_real_server_go_on_after_one_was_interrupted(
    server: local.LocalServer, queue_name: str, each_place: EachPlace
) -> None:
    backend = NativeBackend(server, RawHBase(server.gateways[0]))

    @contextlib.contextmanager
    def connect() -> Iterator[Client]:
        with backend.connect(**BOUNDS) as client:
            yield client
            client.delete_queue(queue_name, force=True)

    interrupted.puts(connect, each_place, queue_name)
