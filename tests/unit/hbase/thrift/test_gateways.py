"""Which gateway is asked, and what its answers mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, cast

import pytest

from hqueue import (
    GatewayAddress,
    HQueueError,
    Outcome,
    QueueExistsError,
    QueueNotFoundError,
    RequestRefusedError,
    Settings,
    StoreUnavailableError,
)
from hqueue.errors import QueueDisabledError, QueueEnabledError, RowsUnreadableError
from hqueue.hbase.thrift.connection import Service
from hqueue.hbase.thrift.gateway import Gateway, OpenConnection
from hqueue.hbase.thrift.gateways import Gateways
from hqueue.hbase.thrift.idl import IllegalArgument, IOError, hbase2
from hqueue.hbase.thrift.translation import translate_answer
from tests.support.doubles import SteppedClock

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


@dataclasses.dataclass
class FakeConnection:
    """A connection whose answers the test decides, by host and service."""

    address: GatewayAddress
    service: Service
    settings: Settings
    closed: bool = False

    opened: ClassVar[int] = 0
    answers: ClassVar[Callable[[str, Service], Any]]

    def __post_init__(self) -> None:
        type(self).opened += 1
        self.client = self
        self.socket = self

    def settimeout(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def ask(self) -> Any:
        return type(self).answers(self.address.host, self.service)


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def gateways(clock: SteppedClock) -> Gateways:
    FakeConnection.opened = 0
    answer_all()
    addresses = tuple(GatewayAddress(host) for host in HOSTS)
    settings = Settings(gateways=addresses, gateway_retry_ms=1_000)
    return Gateways(settings, clock, cast(OpenConnection, FakeConnection))


def answer_all() -> None:
    FakeConnection.answers = staticmethod(lambda host, service: host)


def fail(*failing: tuple[str, Service]) -> None:
    def answer(host: str, service: Service) -> str:
        if (host, service) in failing:
            raise ConnectionResetError
        return host

    FakeConnection.answers = staticmethod(answer)


def ask(gateways: Gateways, service: Service = Service.THRIFT2, host: str | None = None) -> str:
    answer: str = gateways.call(service, "ask", "table", host=host)
    return answer


def test_the_preferred_host_is_asked_and_without_one_each_in_turn(gateways: Gateways) -> None:
    assert {ask(gateways, host=HOSTS[1]) for _ in range(5)} == {HOSTS[1]}
    assert {ask(gateways, host="127.0.0.9") for _ in range(6)} == set(HOSTS)
    assert {ask(gateways) for _ in range(6)} == set(HOSTS)


def test_a_failed_gateway_is_avoided_for_a_time_that_doubles(
    gateways: Gateways, clock: SteppedClock
) -> None:
    fail((HOSTS[0], Service.THRIFT2))
    for pause_ms in (1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000):
        with pytest.raises(StoreUnavailableError):
            ask(gateways, host=HOSTS[0])
        for wait_ms in (0, pause_ms - 1):
            clock.now_ms += wait_ms
            assert ask(gateways, host=HOSTS[0]) != HOSTS[0]
        clock.now_ms += 1
    answer_all()
    assert ask(gateways, host=HOSTS[0]) == HOSTS[0]
    fail((HOSTS[0], Service.THRIFT2))
    with pytest.raises(StoreUnavailableError):
        ask(gateways, host=HOSTS[0])
    clock.now_ms += 1_000
    answer_all()
    assert ask(gateways, host=HOSTS[0]) == HOSTS[0], "an answer makes it start again"


def test_all_connections_in_use_are_no_failure_of_the_gateway() -> None:
    settings = Settings(connections_max=1, operation_timeout_ms=30)
    open_connection = cast(OpenConnection, FakeConnection)
    address = GatewayAddress(HOSTS[0])
    gateway = Gateway(address, Service.THRIFT1, settings, SteppedClock(), open_connection)

    def request(connection: Any) -> None:
        with pytest.raises(StoreUnavailableError, match="became free in time"):
            gateway.call(lambda other: None)

    gateway.call(request)
    assert not gateway.is_avoided
    gateway.call(lambda connection: None)


def test_the_other_process_of_the_same_host_says_nothing_of_a_gateway(gateways: Gateways) -> None:
    fail((HOSTS[0], Service.THRIFT1))
    with pytest.raises(StoreUnavailableError):
        ask(gateways, Service.THRIFT1, HOSTS[0])
    assert ask(gateways, Service.THRIFT2, HOSTS[0]) == HOSTS[0]
    assert ask(gateways, Service.THRIFT1, HOSTS[0]) != HOSTS[0]


def test_when_all_are_avoided_the_one_whose_time_is_over_first_is_asked(
    gateways: Gateways, clock: SteppedClock
) -> None:
    fail(*((host, Service.THRIFT2) for host in HOSTS))
    for host in (HOSTS[2], HOSTS[0], HOSTS[1]):
        with pytest.raises(StoreUnavailableError):
            ask(gateways, host=host)
        clock.now_ms += 10
    answer_all()
    assert ask(gateways, host=HOSTS[1]) == HOSTS[2]


def test_connections_are_used_again_until_they_idled_too_long(
    gateways: Gateways, clock: SteppedClock
) -> None:
    for _ in range(5):
        ask(gateways, host=HOSTS[0])
    assert FakeConnection.opened == 1
    clock.now_ms += gateways.settings.connection_idle_ms + 1
    ask(gateways, host=HOSTS[0])
    assert FakeConnection.opened == 2


def answered(message: str, can_retry: bool | None = None) -> Exception:
    if can_retry is None:
        error: Exception = IOError(message=message.encode())
    else:
        error = hbase2.TIOError(message=message.encode(), canRetry=can_retry)
    return error


STACK = "\n\tat org.apache.hadoop.hbase.Some.where(Some.java:1)"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        # As HBase 2.6.1 words them. Thrift2 leaves the class out of its own client's errors.
        (answered("q", False), QueueNotFoundError),
        (answered("q is disabled.", False), QueueDisabledError),
        (answered("tableName=q, state=ENABLED", False), QueueEnabledError),
        (answered("o.a.h.h.TableNotFoundException: q" + STACK, False), QueueNotFoundError),
        (answered("o.a.h.h.TableExistsException: q" + STACK, False), QueueExistsError),
        (answered("o.a.h.h.TableNotFoundException: q" + STACK), QueueNotFoundError),
        (answered("o.a.h.h.TableNotEnabledException: q is disabled." + STACK), QueueDisabledError),
        (answered("o.a.h.h.NamespaceNotFoundException: n" + STACK, False), RequestRefusedError),
    ],
)
def test_final_answers_are_final(error: Exception, kind: type[HQueueError]) -> None:
    translated = translate_answer(error, "q", "get")
    assert type(translated) is kind
    assert translated.outcome is Outcome.NOT_APPLIED
    assert translated.facts["queue"] == "q"


SEVERAL = "o.a.h.h.client.RetriesExhaustedWithDetailsException: Failed"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            answered(f"{SEVERAL} 2 actions: q: 2 times, servers with issues: null{STACK}"),
            QueueNotFoundError,
        ),
        (
            answered("Failed 1 action: q: 1 time, servers with issues: h,1,2", True),
            QueueNotFoundError,
        ),
        (
            answered(
                f"{SEVERAL} 3 actions: NotServingRegionException: 1 time, q is disabled.: 2 times, "
                f"servers with issues: h,1,2, h,1,3{STACK}"
            ),
            QueueDisabledError,
        ),
        (
            answered(f"{SEVERAL} 2 actions: other: 2 times, servers with issues: null"),
            StoreUnavailableError,
        ),
        (
            answered(
                f"{SEVERAL} 2 actions: NotServingRegionException: 2 times, servers with issues: q"
            ),
            StoreUnavailableError,
        ),
    ],
)
def test_what_is_said_of_several_rows_tells_the_tables_state_and_leaves_the_outcome_open(
    error: Exception, kind: type[HQueueError]
) -> None:
    translated = translate_answer(error, "q", "getRowsWithColumns")
    assert type(translated) is kind
    assert translated.outcome is Outcome.UNKNOWN


def test_files_that_cant_be_read_are_told_from_other_failures() -> None:
    trace = "\n\tat org.apache.hadoop.hbase.io.hfile.HFileBlock.read(X.java:1)"
    translated = translate_answer(answered(f"java.io.IOException: magic{trace}"), "q", "get")
    assert type(translated) is RowsUnreadableError


def test_a_namespace_that_is_not_there_is_named() -> None:
    error = answered("o.a.h.h.NamespaceNotFoundException: n" + STACK, False)
    assert "namespace" in translate_answer(error, "n:q", "createTable").text


@pytest.mark.parametrize(
    "error",
    [
        answered("q", True),
        answered("Failed after attempts=16", True),
        answered("o.a.h.h.client.RetriesExhaustedException: q" + STACK),
        answered(
            "o.a.h.h.DoNotRetryIOException: Zookeeper LIST could not be completed in 10000 ms"
        ),
        answered(""),
        IllegalArgument(message=b"scanner ID is invalid"),
    ],
)
def test_other_answers_may_be_asked_again_and_leave_the_outcome_open(error: Exception) -> None:
    translated = translate_answer(error, "q", "get")
    assert type(translated) is StoreUnavailableError
    assert translated.outcome is Outcome.UNKNOWN
    assert "b'" not in str(translated)
