"""How a consumer hands messages out: cheaply, and never without having looked after its group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import hqueue
from hqueue import Message, MessageID
from hqueue.groups.member import GroupMember
from hqueue.groups.share import Share
from hqueue.groups.stream import Stream
from tests.support.backends import MemoryBackend
from tests.support.memory.metadata import MemoryServer
from tests.support.stopping import stopped_at
from tests.support.waiting import wait_for

COUNT = 5_000


class Looks:
    """How often consumers looked after their groups."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        original = Share.look

        def look(share: Share, stream: Stream) -> bool:
            self.count += 1
            return original(share, stream)

        monkeypatch.setattr(Share, "look", look)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def consumer(server: MemoryServer) -> Iterator[hqueue.Consumer]:
    """One that has a partition with one batch of many messages."""
    with MemoryBackend(coordination=server).connect() as client:
        queue = client.create_queue("q", partitions=1)
        queue.put([Message("t", b"%d" % number) for number in range(COUNT)])
        with hqueue.Consumer("q", group="g", client=client) as opened:
            yield opened


def test_the_messages_of_a_batch_come_without_a_look_for_each(
    consumer: hqueue.Consumer, looks: Looks
) -> None:
    messages = consumer.messages()
    first = next(messages)
    before = looks.count
    assert [int(each.value) for each in itertools.islice(messages, COUNT - 1)] == [*range(1, COUNT)]
    assert first.value == b"0"
    # Changes of the group, and of the catalog, want a few; a look for each would be thousands.
    assert looks.count - before < COUNT / 100


def test_when_its_time_is_over_the_next_message_comes_after_another_look(
    consumer: hqueue.Consumer, looks: Looks
) -> None:
    messages = consumer.messages()
    for number in range(3):
        assert next(messages).value == b"%d" % number
        before = looks.count
        consumer._consumption.streams[0].valid_until_s = consumer._consumption.now_s()
    assert next(messages).value == b"3"
    assert looks.count > before


def test_the_position_follows_each_message_that_was_handed_out(consumer: hqueue.Consumer) -> None:
    for message in itertools.islice(consumer, 10):
        assert consumer.position(("q", 0)) == message.id.next()
    (polled, *_) = wait_for(lambda: consumer.poll(100, messages_max=7), "more messages")
    assert polled.value == b"10"
    assert consumer.position(("q", 0)) == MessageID.from_int(int(polled.id) + 7)


def test_a_consumer_that_gets_nothing_does_not_ask_whether_its_session_lives(
    consumer: hqueue.Consumer, server: MemoryServer
) -> None:
    handed = list(itertools.islice(consumer, COUNT))
    assert len(handed) == COUNT
    assert consumer.poll() == []  # Until now the last message was being handed out.
    holder = consumer._consumption.membership.holder
    assert isinstance(holder, GroupMember)
    holder._certainty.until_ms = float("-inf")
    before = server.confirmations
    assert consumer.poll(200) == []
    assert server.confirmations == before


def test_what_was_read_before_its_session_ended_is_not_handed_out_by_its_next_claim(
    consumer: hqueue.Consumer, server: MemoryServer
) -> None:
    wait_for(lambda: consumer.poll(100, messages_max=7), "messages")
    consumption, stream = consumer._consumption, consumer._consumption.streams[0]
    before, holder = stream.handout, consumption.membership.holder
    assert before is not None
    assert isinstance(holder, GroupMember)
    holder._certainty.until_ms = float("-inf")
    with (
        ThreadPoolExecutor(1) as pool,
        stopped_at(holder, "certain") as (reached, go_on),
    ):
        refilled = pool.submit(consumption.refill, stream, 60_000)
        assert reached.wait(60)
        server.sessions[-1].expire()
        wait_for(holder.certain, "the next session is certain")
        go_on.set()
        after = refilled.result(60)
    assert after is not None
    assert after is not before
