"""How far readers of a topic are behind is counted by headers, and bounded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from hqueue import InvalidInputError, Message, MessageID, TopicLag
from hqueue.client import cluster_of
from hqueue.format.cells import encode_bodies
from hqueue.format.control import with_owners
from hqueue.handle import QueueLog
from hqueue.log.topic_lag import PAGES_MAX
from hqueue.log.walk import WALKED_HEADERS
from hqueue.metadata.managers import LogRange
from hqueue.queue import Queue
from hqueue.runtime.loop import blocking
from tests.support.backends import MemoryBackend
from tests.support.doubles import SteppedClock
from tests.support.log_faces import BlockingFace, LoopFace
from tests.support.looped import LoopThread

START_MS = 1_000_000
STEP_MS = 10


class Scene:
    """A queue of two partitions, and what is asked of it."""

    def __init__(
        self, queue: Queue, log: QueueLog, face: BlockingFace | LoopFace, clock: SteppedClock
    ) -> None:
        self.queue = queue
        self.log = log
        self.face = face
        self.clock = clock
        self.ranges = [LogRange(0, MessageID(1), None, 0)]

    def put(self, partition: int, *topics: str) -> list[int]:
        """Put a batch, and give the IDs of its messages."""
        self.clock.now_ms += STEP_MS
        return [*map(int, self.queue.put([Message(t, b"v") for t in topics], partition=partition))]

    def lag(self, start: int) -> TopicLag:
        return self.lags({"s": start})["s"]

    def lags(self, starts: dict[str, int]) -> dict[str, TopicLag]:
        positions = {name: MessageID.from_int(start) for name, start in starts.items()}
        lags: dict[str, TopicLag] = self.face.ask(
            "topic_lags", "t", lambda _: blocking(lambda: self.ranges), positions
        )
        return lags


@pytest.fixture(params=["threads", "asyncio"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    clock = SteppedClock(START_MS)
    with MemoryBackend(clock).connect(clock, operation_timeout_ms=10_000) as client:
        client.create_queue("q", partitions=2)
        log = cluster_of(client).log("q")
        if request.param == "threads":
            yield Scene(client.queue("q"), log, BlockingFace(log), clock)
            return
        with contextlib.closing(LoopThread()) as loop:
            yield Scene(client.queue("q"), log, LoopFace(log, loop), clock)


def test_a_topic_s_own_messages_count_and_no_others(scene: Scene) -> None:
    first = scene.put(0, "u", "t", "t", "u")
    scene.put(0, "u", "u")
    second = scene.put(0, "t")
    scene.put(0, "u")
    assert scene.lag(1) == TopicLag(3, True, 3 * STEP_MS)
    assert scene.lag(first[2]) == TopicLag(2, True, 3 * STEP_MS)
    assert scene.lag(first[2] + 1) == TopicLag(1, True, 1 * STEP_MS)
    assert scene.lag(second[0] + 1) == TopicLag(0, True, 0)


def test_messages_that_lie_between_others_of_their_batch_are_counted(scene: Scene) -> None:
    scattered = scene.put(0, "t", "u", "t", "u", "t")
    assert scene.lag(scattered[0]) == TopicLag(3, True, 0)
    within = scene.lag(scattered[1])
    assert within.messages >= 2
    assert not within.exact


def test_all_ranges_count_and_of_a_marked_one_what_its_owner_appended(scene: Scene) -> None:
    first = scene.put(0, "t", "t")
    begins = MessageID.from_int(first[-1] + 1)
    scene.clock.now_ms += STEP_MS
    scene.log.appender.append(with_owners(encode_bodies([Message("t", b"owned")] * 3), {"t": 7}), 1)
    scene.put(1, "t")
    scene.ranges = [
        LogRange(0, MessageID(1), MessageID.from_int(first[-1]), 0),
        LogRange(1, begins, None, 7, marked=True),
    ]
    assert scene.lag(1).messages == 5
    assert scene.lag(first[-1] + 1).messages == 3


def test_several_readers_are_counted_at_once_each_for_itself(scene: Scene) -> None:
    ids = [scene.put(0, "t", "u")[0] for _ in range(10)]
    starts = {str(number): ids[number] for number in range(10)} | {
        "again": ids[3],
        "end": ids[9] + 1,
    }
    lags = scene.lags(starts)
    assert {name: lag.messages for name, lag in lags.items()} == {
        **{str(number): 10 - number for number in range(10)},
        **{"again": 7, "end": 0},
    }
    assert all(lag.exact for lag in lags.values())


def test_one_that_is_far_behind_is_counted_by_ordinals_and_says_so(scene: Scene) -> None:
    batches = (PAGES_MAX + 1) * WALKED_HEADERS
    ids = [scene.put(0, "t" if number % 10 == 0 else "u")[0] for number in range(batches)]
    near = ids[-200]
    lags = scene.lags({"near": near, "far": ids[0]})
    assert lags["near"] == TopicLag(20, True, 199 * STEP_MS)
    assert not lags["far"].exact
    assert batches / 10 <= lags["far"].messages <= batches
    assert lags["far"].age_ms == (batches - 1) * STEP_MS


def test_what_makes_no_sense_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidInputError):
        scene.queue.topic_lags("t", {"s": 5})  # type: ignore[dict-item]
    with pytest.raises(InvalidInputError):
        scene.queue.topic_lags("", {})
    with pytest.raises(InvalidInputError):
        scene.queue.topic_lags("t", [])  # type: ignore[arg-type]
