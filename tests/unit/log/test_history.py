"""What was seen of a long log: a search is not begun again where it can go on."""

from __future__ import annotations

import pytest

from hqueue.format.cells import encode_bodies
from hqueue.format.header import Bodies
from hqueue.log.history import History
from hqueue.message import Message
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive
from tests.support.chain import Chain

REMEMBERED = 64
KEY, OTHER = b"the key!", b"another!"
BODIES: Bodies = encode_bodies([Message("t", b"x")])


class Scene:
    """A log that is far longer than what is remembered of it."""

    def __init__(self) -> None:
        self.chain = Chain()
        self.grow()
        self.history = History(0, REMEMBERED)

    def grow(self, batches: int = 3 * REMEMBERED) -> None:
        """Let others append."""
        for _ in range(batches):
            self.chain.append(BODIES)

    def put(self, nonce: bytes) -> int:
        """Append at the end of what was seen; the ID."""
        position = self.chain.end
        base = self.chain.append(BODIES, nonce)
        self.history.note(position, nonce, base, BODIES)
        return base

    def find(self, nonce: bytes, since: int = 0) -> int | None:
        deadline = Deadline(SYSTEM_CLOCK, 30_000)
        work = self.history.find(nonce, since, self.chain.end, deadline)
        found = drive(work, self.chain, deadline)
        return None if found is None else found.base


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_search_that_is_repeated_reads_what_is_new_alone(scene: Scene) -> None:
    assert scene.find(KEY) is None
    read = scene.chain.given
    assert read >= 3 * REMEMBERED
    assert scene.find(KEY) is None
    scene.grow(5)
    assert scene.find(KEY) is None
    assert scene.chain.given == read + 5


def test_a_batch_is_found_that_was_put_after_a_search_and_is_not_remembered(scene: Scene) -> None:
    assert scene.find(KEY) is None
    base = scene.put(KEY)
    for _ in range(3 * REMEMBERED):
        scene.put(OTHER)
    assert scene.find(KEY) == base


def test_a_batch_that_others_put_after_a_search_is_found_twice(scene: Scene) -> None:
    assert scene.find(KEY) is None
    base = scene.chain.append(BODIES, KEY)
    scene.grow()
    assert [scene.find(KEY) for _ in range(2)] == [base, base]


def test_a_search_for_another_or_from_further_back_begins_anew(scene: Scene) -> None:
    base = scene.chain.append(BODIES, OTHER)
    later = scene.chain.end.slot
    scene.grow()
    assert scene.find(KEY) is None
    assert scene.find(OTHER) == base
    assert scene.find(OTHER, later) is None
    assert scene.find(OTHER) == base


def test_a_search_of_a_log_that_was_truncated_begins_anew(scene: Scene) -> None:
    assert scene.find(KEY) is None
    scene.chain.truncate(scene.chain.end.slot)
    base = scene.chain.append(BODIES, KEY)
    scene.grow()
    assert scene.find(KEY) == base
