"""What topics have behind a place: over all their ranges, and only for as long as somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from hqueue import Message, MessageID, StoreUnavailableError
from hqueue.consume.queue_reader import QueueReader
from hqueue.consume.topic_past import KEPT_MS, TOPICS_MAX, TopicPast
from hqueue.format.cells import encode_bodies
from hqueue.log.newest import NewestMessages
from hqueue.log.ports import Row
from hqueue.log.steps import Work
from hqueue.metadata.managers import LogRange
from hqueue.runtime.clock import Deadline, drive
from tests.support.chain import Chain
from tests.support.doubles import SteppedClock

PARTITIONS = 3


class _Chains:
    """The headers of several partitions."""

    def __init__(self, chains: Sequence[Chain]) -> None:
        self._chains = chains

    def newest(self, partition: int, at_or_below: int) -> Row | None:
        return self._chains[partition].newest(partition, at_or_below)

    def headers(self, partition: int, start: int, limit: int) -> list[Row]:
        return self._chains[partition].headers(partition, start, limit)


class Scene:
    """Partitions of headers, and what is known of them."""

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self.clock = SteppedClock()
        self.chains = [Chain() for _ in range(PARTITIONS)]
        reader = SimpleNamespace(
            newest_messages=NewestMessages,
            do=self._do,
            deadline=lambda: Deadline(self.clock, 50),
        )
        self.meanwhile: Callable[[], object] = lambda: None
        """Called while headers are asked for."""
        self.past = TopicPast(cast(QueueReader, reader), self.clock, topics_max)

    def _do(self, decide: Callable[[Deadline], Work[bool]], deadline: Deadline) -> bool:
        self.meanwhile()
        return drive(decide(deadline), _Chains(self.chains), deadline)

    def append(self, partition: int, topic: str) -> int:
        return self.chains[partition].append(encode_bodies([Message(topic, b"x")]))

    def may_have(self, topic: str, start: int, *ranges: LogRange) -> bool:
        stop = max(chain.end.slot for chain in self.chains)
        first, last = MessageID.from_int(start), MessageID.from_int(stop)
        return self.past.may_have(topic, ranges, first, last)


def a_range(partition: int, first: int, last: int | None, epoch: int = 0) -> LogRange:
    end = None if last is None else MessageID.from_int(last)
    return LogRange(partition, MessageID.from_int(first), end, epoch)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_all_ranges_behind_the_place_are_looked_at_and_no_others(scene: Scene) -> None:
    first = scene.append(0, "a")
    scene.append(1, "other")
    second = scene.append(1, "a")
    scene.append(2, "a")
    ranges = a_range(0, 0, first), a_range(1, first + 1, second, 1)
    assert scene.may_have("a", 0, *ranges)
    assert scene.may_have("a", first, *ranges)
    assert not scene.may_have("a", second + 1, *ranges)
    assert not scene.may_have("b", 0, *ranges)
    assert scene.chains[2].given == 0


def test_headers_are_read_once_for_all_topics_and_again_when_they_were_forgotten(
    scene: Scene,
) -> None:
    last = [scene.append(0, "other") for _ in range(50)][-1]
    for number in range(100):
        assert not scene.may_have(f"t{number}", 0, a_range(0, 0, last))
    assert scene.chains[0].given == 50
    scene.clock.now_ms += KEPT_MS / 2
    assert scene.past.drop_idle()
    assert not scene.may_have("t", 0, a_range(0, 0, last))
    assert scene.chains[0].given == 50
    scene.clock.now_ms += KEPT_MS + 1
    assert not scene.past.drop_idle()
    assert not scene.may_have("t", 0, a_range(0, 0, last))
    assert scene.chains[0].given == 100


def test_who_waits_for_what_another_asked_waits_for_so_long_at_most(scene: Scene) -> None:
    last = scene.append(0, "other")
    refused: list[str] = []

    def ask_too() -> None:
        with pytest.raises(StoreUnavailableError, match="others asked for") as caught:
            scene.may_have("t", 0, a_range(0, 0, last))
        refused.append(caught.value.text)

    scene.meanwhile = ask_too
    assert not scene.may_have("t", 0, a_range(0, 0, last))
    assert len(refused) == 1


def test_no_more_topics_are_kept_than_may_be() -> None:
    scene = Scene(topics_max=10)
    last = [[scene.append(each, f"{number}") for number in range(9)][-1] for each in (0, 1)]
    for partition in (0, 1, 0):
        assert not scene.may_have("t", 0, a_range(partition, 0, last[partition]))
    assert [chain.given for chain in scene.chains] == [18, 9, 0], "the first was forgotten for it"
