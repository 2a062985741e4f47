"""Up to where a partition's messages have expired: by what is there."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import hqueue
from hqueue import MessageID
from tests.support.backends import MemoryBackend
from tests.support.doubles import SteppedClock
from tests.support.past import DAY_MS, put_in_the_past
from tests.support.queue_faces import QueueFace

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
WRONG_MS = [0, -3 * MINUTE_MS, MINUTE_MS, -400 * DAY_MS, -DAY_MS, DAY_MS, 400 * DAY_MS]
WRONG_MS.append(DAY_MS - NOW_MS)  # The first ID that there is.


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend(SteppedClock(NOW_MS))


@pytest.fixture
def client(memory: MemoryBackend) -> Iterator[hqueue.Client]:
    with memory.connect(SteppedClock(NOW_MS)) as client:
        yield client


@pytest.fixture
def queue(client: hqueue.Client) -> hqueue.Queue:
    return client.create_queue("q", partitions=1, ttl="1d")


@pytest.mark.parametrize("wrong_ms", WRONG_MS)
@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_guessed_the_place_is_found(
    memory: MemoryBackend, queue: hqueue.Queue, wrong_ms: int, seed: int
) -> None:
    random_ = random.Random(seed)
    ages_ms = sorted((random_.randrange(3 * DAY_MS) for _ in range(200)), reverse=True)
    bases = put_in_the_past(memory.raw, queue, ages_ms, now_ms=NOW_MS)
    read = {int(message.id) for message in queue.scan()}
    there = [base for base in bases if base in read]
    gone = [base for base in bases if base not in there]
    guess = MessageID(NOW_MS - DAY_MS + wrong_ms)
    found = queue.expiry(0, guess, exact_ms=MINUTE_MS)
    assert gone[-1] < found.gone <= there[0], "all below it has expired"
    assert found.kept in there
    between = [base for base in there if found.gone <= base <= found.kept]
    assert between[-1] - between[0] <= MessageID(MINUTE_MS)


@pytest.mark.parametrize("wrong_ms", WRONG_MS)
def test_where_nothing_or_all_has_expired_that_is_seen(
    memory: MemoryBackend,
    client: hqueue.Client,
    queue: hqueue.Queue,
    queue_face: QueueFace,
    wrong_ms: int,
) -> None:
    queue = queue_face(client, queue)
    guess = MessageID(NOW_MS - DAY_MS + wrong_ms)
    found = queue.expiry(0, guess)
    assert (found.gone, found.kept) == (0, 0), "an empty log"
    (base,) = put_in_the_past(memory.raw, queue, [DAY_MS // 2], now_ms=NOW_MS)
    found = queue.expiry(0, guess)
    assert (found.gone, found.kept) == (0, base)
    memory.raw.clock.now_ms += DAY_MS  # type: ignore[attr-defined]
    found = queue.expiry(0, guess)
    end = queue.offsets()[0].end
    assert (found.gone, found.kept) == (end, end)
