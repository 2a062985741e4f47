"""Three hubs share their topics by themselves: one that joins gets its share, one that has too much
sheds, and what is in balance rests.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

import hqueue
from hqueue_workers.hub.owning import balance
from hqueue_workers.hub.owning.shedding import Shedding
from tests.support.backends import Backend
from tests.support.hubs import HubThread
from tests.support.waiting import wait_for

pytestmark = pytest.mark.in_memory_first

WAIT_S = 240.0
STAY_MS = 500.0
TOPICS = [f"t/{number}" for number in range(60)]
HOT = TOPICS[:6]
SHARE = range(18, 23)
"""Of three hubs: within a tenth of the mean, as `balance` has it."""
RESTING_ROUNDS = 5
MOVES_MAX = 4
"""Of one topic until loads have converged: more would be bouncing."""


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Counter[Shedding]:
    """How often each hub looked at its load. Topics stay for half a second, not for a minute."""
    counted: Counter[Shedding] = Counter()
    shed = Shedding.shed

    def counting(self: Shedding) -> None:
        shed(self)
        counted[self] += 1

    monkeypatch.setattr(Shedding, "shed", counting)
    monkeypatch.setattr(balance, "STAY_MS", STAY_MS)
    return counted


class Hubs:
    """Hubs, and a client that knows the first alone and subscribes to all topics: a topic that is
    left is called for at once.
    """

    def __init__(
        self,
        stack: contextlib.ExitStack,
        backend: Backend,
        queue: str,
        rounds: Counter[Shedding],
    ) -> None:
        self._stack = stack
        self._rounds = rounds
        self._connect = backend.connect
        self.queue = queue
        self.hubs: list[HubThread] = []
        self.start()
        self.client = stack.enter_context(
            hqueue.connect_hubs(self.hubs[0].address, queue=queue, operation_timeout_ms=60_000)
        )
        self.metadata = stack.enter_context(
            stack.enter_context(self._connect()).topic_metadata(queue)
        )
        for topic in TOPICS:
            self.client.topic(topic).subscribe("sub", lambda _: None)

    def start(self) -> None:
        client = self._stack.enter_context(self._connect())
        self.hubs.append(self._stack.enter_context(HubThread(client, self.queue)))

    def counts(self) -> list[int]:
        return [len(hub.owns(self.queue)) for hub in self.hubs]

    def await_rest(self, what: str) -> None:
        """Wait until all have their share, and no topic moves while all look at their loads again
        and again.
        """

        def looked(before: Counter[Shedding]) -> bool:
            since = [self._rounds[each] - before[each] for each in self._sheddings()]
            return min(since) >= RESTING_ROUNDS

        def rested() -> bool:
            counts, moved, before = self.counts(), self.take_overs(), self._rounds.copy()
            wait_for(lambda: looked(before), "all look at their loads", timeout_s=WAIT_S)
            return (
                all(count in SHARE for count in counts)
                and self.counts() == counts
                and self.take_overs() == moved
            )

        wait_for(rested, what, timeout_s=WAIT_S)

    def _sheddings(self) -> list[Shedding]:
        return [hub.hosted(self.queue).shedding for hub in self.hubs]

    def take_overs(self) -> Counter[str]:
        """How often each topic was taken over, since it was created."""
        persistence = self.metadata.persistence
        asked = {topic: persistence.read_topic_persistence_info(topic) for topic in TOPICS}
        epochs: Counter[str] = Counter()
        for topic, future in asked.items():
            found = future.result(WAIT_S)
            assert found is not None
            epochs[topic] = found.value.ranges[-1].epoch
        return epochs


@pytest.fixture
def hubs(
    backend: Backend, make_queue: Callable[..., hqueue.Queue], rounds: Counter[Shedding]
) -> Iterator[Hubs]:
    with contextlib.ExitStack() as stack:
        yield Hubs(stack, backend, make_queue(3).name, rounds)


@contextlib.contextmanager
def published(client: hqueue.HubClient, topics: list[str]) -> Iterator[None]:
    """While the block runs, messages are published to these topics in turn."""
    stopping = threading.Event()

    def publish() -> None:
        while not stopping.is_set():
            for topic in topics:
                client.topic(topic).publish(b"v")

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_loads_of_three_hubs_converge_and_topics_do_not_bounce(hubs: Hubs) -> None:
    assert hubs.counts() == [len(TOPICS)]
    hubs.start()
    hubs.start()
    hubs.await_rest("hubs that join get their share")
    moved = hubs.take_overs()
    assert max(moved.values()) <= MOVES_MAX
    assert moved.total() <= len(TOPICS), "few move that need not"
    for topic in TOPICS:
        hubs.client.topic(topic).move(hubs.hubs[0].address)
    hubs.await_rest("a hub that has too many sheds some")
    for topic in HOT:
        hubs.client.topic(topic).move(hubs.hubs[1].address)
    with published(hubs.client, HOT):
        wait_for(
            lambda: max(len(hub.owns(hubs.queue) & set(HOT)) for hub in hubs.hubs) <= len(HOT) // 2,
            "topics that are much used are shared, too",
            timeout_s=WAIT_S,
        )
    hubs.hubs.pop().terminate()
    wait_for(lambda: sum(hubs.counts()) == len(TOPICS), "two have all", timeout_s=WAIT_S)
