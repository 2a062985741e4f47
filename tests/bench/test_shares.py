"""The rivals of share groups, and what they are measured with. ``make test-kafka`` runs this."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from .push import publish
from .share_consumers import open_queue
from .share_processes import ConsumerProcesses
from .share_rivals import Rivals, running_rivals

pytestmark = pytest.mark.kafka

VALUES = [b"%0100d" % number for number in range(3_000)]


@pytest.fixture(scope="module")
def rivals() -> Iterator[Rivals]:
    with running_rivals() as running:
        started = psutil.Process().children(recursive=True)
        assert {"epmd", "postgres", "java"} <= {each.name() for each in started}
        yield running
    _, left = psutil.wait_procs(started, timeout=10)  # The last ones end by themselves.
    assert not left


@pytest.fixture(scope="module")
def processes() -> Iterator[ConsumerProcesses]:
    with ConsumerProcesses(2) as running:
        yield running


@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize(
    ("system", "how"),
    [("rabbitmq", {"how": "each"}), ("rabbitmq", {"how": "batches"}), ("postgres", {})],
)
def test_consumers_take_and_acknowledge_all(
    system: str, how: dict[str, str], consumers: int, rivals: Rivals, processes: ConsumerProcesses
) -> None:
    rivals.fill(system, VALUES)
    assert rivals.left(system) == len(VALUES)
    seconds, took_ms = processes.run(consumers, len(VALUES), {**rivals.given(system), **how})
    assert 0 < seconds < 60
    assert not took_ms, "these values have no time"
    assert rivals.left(system) == 0


@pytest.mark.parametrize("consumers", [1, 2])
def test_consumers_of_kafka_take_and_acknowledge_all(
    consumers: int, rivals: Rivals, processes: ConsumerProcesses
) -> None:
    given = rivals.kafka.given(2)
    seconds, took_ms = processes.run(
        consumers, len(VALUES), given, before=lambda: rivals.kafka.fill(given, VALUES)
    )
    assert 0 < seconds < 60
    assert not took_ms, "these values have no time"
    open_queue(**given).close()  # It would raise an error if the group still had messages.


def test_the_time_of_each_message_is_known(rivals: Rivals, processes: ConsumerProcesses) -> None:
    with rivals.channel() as channel:
        _, took_ms = processes.run(
            2,
            200,
            {**rivals.given("rabbitmq"), "how": "each"},
            lambda: publish(lambda value: rivals.send(channel, value), 200),
        )
    assert len(took_ms) == 200
    assert all(0 < took < 60_000 for took in took_ms)


def test_a_consumer_that_fails_is_noticed(rivals: Rivals) -> None:
    given = {**rivals.given("postgres"), "queue": "no_such_table"}
    with ConsumerProcesses(1) as processes, pytest.raises((RuntimeError, TimeoutError)):
        processes.run(1, 1, given)
