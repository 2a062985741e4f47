"""The broker, and what is measured with it. ``make test-kafka`` runs this, as it needs both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ..push import await_condition
from .broker import Broker, running_broker

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running
    assert not psutil.pid_exists(running.process.pid)


@pytest.fixture(params=["confluent", "kafka-python"])
def library(request: pytest.FixtureRequest, broker: Broker) -> Any:
    # Not at the top: `make test` reads this file, too, where they are not installed.
    if request.param == "confluent":
        from .confluent import Confluent  # noqa: PLC0415

        return Confluent(broker.address)
    from .kafka_python import KafkaPython  # noqa: PLC0415

    return KafkaPython(broker.address)


@pytest.mark.parametrize("on_disk", [False, True])
def test_what_is_produced_is_consumed(library: Any, *, on_disk: bool) -> None:
    log = library.fresh(partitions=2, on_disk=on_disk)
    assert log.put_batches([b"a", b"b", b"c"], 2) == 3
    assert log.put_each([b"d", b"e"]) == 2
    log.put_one(b"f")
    log.read_last()
    assert log.read(6) == 6
    assert log.read(6) == 6, "a second read begins at the beginning, too"
    log.close()


@pytest.mark.parametrize("name", ["Aiokafka", "ConfluentInLoop"])
def test_what_is_produced_in_a_loop_is_consumed_there(name: str, broker: Broker) -> None:
    from . import in_loops  # noqa: PLC0415

    async def run() -> None:
        log = await getattr(in_loops, name)(broker.address).open()
        assert await log.put_batches([b"a", b"b", b"c"]) == 3
        assert await log.put_each([b"d", b"e"]) == 2
        assert await log.put_at_once([b"f", b"g"]) == 2
        await log.put_one(b"h")
        assert await log.read(8) == 8
        assert await log.read(8) == 8, "a second read begins at the beginning, too"
        await log.close()

    asyncio.run(run())


def test_what_is_published_reaches_the_handler(library: Any) -> None:
    log = library.fresh()
    handled: list[bytes] = []
    with log.deliver(handled.extend) as publish:
        for number in range(20):
            publish(b"%d" % number)
        await_condition(lambda: len(handled) >= 20)
    log.close()
    assert sorted(map(int, handled)) == list(range(20))


def test_a_broker_that_does_not_start_leaves_no_process_and_says_why(
    broker: Broker, tmp_path: Path
) -> None:
    del broker  # Only so that its jars are there.
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(Exception, match="storage") as caught, running_broker(tmp_path):
        pass
    assert "data" in str(caught.value)
