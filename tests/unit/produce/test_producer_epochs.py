"""When an epoch was claimed is the same for all that ask, whatever becomes of their requests."""

from __future__ import annotations

import itertools
import random

import pytest

from hqueue import FencedError, InvalidInputError, MessageID, Outcome, StoreUnavailableError
from hqueue.produce.idempotency import ProducerEpochs
from hqueue.runtime.clock import Deadline, drive

FATES = ("pass", "pass", "lost", "answer lost", "stale", "late")


class SlowClock:
    """A clock that goes on at each look at it."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def monotonic_ms(self) -> float:
        return float(self.now_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self.now_ms += int(duration_ms)


class Records:
    """A port whose requests fail by chance, and whose reads may be old."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.history: list[bytes | None] = [None]
        self._late: list[tuple[bytes | None, bytes]] = []

    def record(self, name: str) -> bytes | None:
        match self._fate():
            case "lost" | "answer lost":
                raise StoreUnavailableError("lost")
            case "stale":
                return self._chance.choice(self.history)
        return self.history[-1]

    def replace_record(self, name: str, old: bytes | None, new: bytes) -> bool:
        for late in self._late[:]:
            if self._chance.random() < 0.5:
                self._late.remove(late)
                self._apply(*late)
        match self._fate():
            case "lost":
                raise StoreUnavailableError("lost", outcome=Outcome.UNKNOWN)
            case "late":
                self._late.append((old, new))
                raise StoreUnavailableError("late", outcome=Outcome.UNKNOWN)
            case "answer lost":
                self._apply(old, new)
                raise StoreUnavailableError("answer lost", outcome=Outcome.UNKNOWN)
        return self._apply(old, new)

    def _apply(self, old: bytes | None, new: bytes) -> bool:
        if self.history[-1] != old:
            return False
        self.history.append(new)
        return True

    def _fate(self) -> str:
        return self._chance.choice(FATES)


def claim(port: Records, clock: SlowClock, epoch: int) -> MessageID:
    deadline = Deadline(clock, 60_000)
    return drive(ProducerEpochs(clock).claim("work", epoch, deadline), port, deadline)


@pytest.mark.parametrize("seed", range(200))
def test_all_learn_the_same_of_an_epoch_and_an_epoch_that_is_fenced_stays_so(seed: int) -> None:
    chance = random.Random(seed)
    clock = SlowClock()
    port = Records(chance)
    told: dict[int, set[MessageID]] = {}
    for epoch in sorted(chance.choices(range(4), k=12)):
        for _ in range(2):
            asked_ms = clock.now_ms
            since = claim(port, clock, epoch)
            if epoch not in told:
                assert since.timestamp > asked_ms
            told.setdefault(epoch, set()).add(since)
    assert all(len(moments) == 1 for moments in told.values())
    moments = [min(told[epoch]) for epoch in sorted(told)]
    assert all(a < b for a, b in itertools.pairwise(moments))


def test_an_epoch_that_is_fenced_is_refused() -> None:
    clock = SlowClock()
    port = Records(random.Random(0))
    claim(port, clock, 7)
    with pytest.raises(FencedError) as caught:
        claim(port, clock, 6)
    assert (caught.value.epoch, caught.value.latest) == (6, 7)


@pytest.mark.parametrize(
    ("name", "epoch"), [("", 0), ("a/b", 0), ("w", -1), ("w", True), ("w", 2**63), ("w", "1")]
)
def test_what_is_no_producer_or_epoch_is_refused(name: str, epoch: object) -> None:
    epochs = ProducerEpochs(SlowClock())
    with pytest.raises(InvalidInputError):
        epochs.claim(name, epoch, Deadline(SlowClock(), 1))  # type: ignore[arg-type]
