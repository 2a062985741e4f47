"""The first programs of docs/coming-from.md, and what its tables say of HQueue."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import hqueue
from hqueue import Message
from tests.support.backends import Backend
from tests.support.hubs import HubThread

pytestmark = pytest.mark.in_memory_first

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def program_of(system: str, queue: str, name: str) -> str:
    """The program for those who know this system, with a queue of the test in place of its own."""
    sections = dict(SECTION.findall(PAGE.read_text(encoding="utf-8")))
    [program] = PROGRAM.findall(sections[system])
    assert f'"{queue}"' in program
    return str(program.replace(f'"{queue}"', repr(name)))


@pytest.fixture
def printed(
    backend: Backend,
    queue_name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    delete_beside: Callable[[str], object],
) -> Callable[[str, str], list[str]]:
    """Runs a program that makes its queue, and returns the lines that it prints."""

    def run(system: str, queue: str) -> list[str]:
        monkeypatch.setattr(hqueue, "connect", backend.connect)
        try:
            exec(compile(program_of(system, queue, queue_name), str(PAGE), "exec"), {})
        finally:
            delete_beside(queue_name)
        return capsys.readouterr().out.splitlines()

    return run


def test_the_program_for_those_who_know_kafka(printed: Callable[[str, str], list[str]]) -> None:
    [line] = printed("Kafka", "events")
    partition, _, rest = line.split(" ", 2)
    assert int(partition) == zlib.crc32(b"user-42") % 8
    assert rest == "b'user-42' b'page 1'"


def test_the_program_for_those_who_know_rabbitmq(printed: Callable[[str, str], list[str]]) -> None:
    assert printed("RabbitMQ", "jobs") == ["print invoice 17"]


def test_the_program_for_those_who_know_sqs(printed: Callable[[str, str], list[str]]) -> None:
    assert printed("SQS", "mails") == ["b'now' 1", "b'a second later' 1"]


def test_the_program_for_those_who_know_pulsar(
    backend: Backend,
    make_queue: Callable[..., hqueue.Queue],
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue = make_queue(8)
    program = program_of("Pulsar", "events", queue.name)
    assert '"127.0.0.1:9190"' in program
    with backend.connect() as client, HubThread(client, queue.name) as hub:
        own = program.replace('"127.0.0.1:9190"', repr(str(hub.address)))
        exec(compile(own, str(PAGE), "exec"), {})
    assert re.fullmatch(r"orders \d+-\d+ b'3 apples'\n", capsys.readouterr().out)


def test_a_put_goes_to_one_partition_and_processes_stay_with_one(
    make_queue: Callable[..., hqueue.Queue],
) -> None:
    queue = make_queue(8)
    keyed = [Message("t", b"", b"%d" % number) for number in range(8)]
    with pytest.raises(hqueue.errors.InvalidInputError, match="one by one with a Producer"):
        queue.put(keyed)
    with queue.producer() as producer:
        sent = [producer.send(message) for message in keyed]
    assert all(delivery.result() for delivery in sent)
    for number in range(5):
        queue.put(Message("without a key", b"%d" % number))
    with queue.scan(topics=["without a key"]) as scanner:
        assert len({message.partition for message in scanner}) == 1


def test_a_new_group_begins_with_the_oldest_message_and_answers_delete_nothing(
    client: hqueue.Client, make_queue: Callable[..., hqueue.Queue], group: str
) -> None:
    queue = make_queue(1)
    queue.put([Message("mail", b"1"), Message("text", b"2")])
    for each in (f"{group}-1", f"{group}-2"):
        with hqueue.ShareConsumer(queue.name, group=each, topics=["mail"], client=client) as shares:
            assert [message.value for message in shares.poll(timeout_ms=20_000)] == [b"1"]
    with hqueue.Consumer(queue.name, group=group, client=client) as consumer:
        assert [message.value for message in consumer.poll(timeout_ms=20_000)] == [b"1", b"2"]
    with queue.scan() as scanner:
        assert [message.value for message in scanner] == [b"1", b"2"]


def test_readers_name_whole_topics(make_queue: Callable[..., hqueue.Queue]) -> None:
    queue = make_queue(1)
    queue.put(Message("orders.new", b""))
    for pattern in ("orders.*", "orders.#", "*"):
        with queue.scan(topics=[pattern]) as scanner:
            assert list(scanner) == []


def test_the_numbers_of_partitions_stay(
    client: hqueue.Client, make_queue: Callable[..., hqueue.Queue]
) -> None:
    queue = make_queue(2)
    with pytest.raises(hqueue.errors.QueueExistsError):
        client.create_queue(queue.name, partitions=3, exist_ok=True)
