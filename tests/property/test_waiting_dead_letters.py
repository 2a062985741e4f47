"""Whatever lies in the log in whatever order: of each message one dead letter waits, or none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hqueue import DeadLetter, MessageID
from tests.support.dead_letters import PARTITIONS, DeadLettersInMemory, LogInMemory, original

ORIGINALS = 6

events = st.lists(
    st.tuples(st.sampled_from(["put", "redrive", "delete"]), st.integers(0, ORIGINALS - 1)),
    max_size=40,
)


@given(events, st.integers(1, 8))
def test_a_dead_letter_waits_until_its_message_is_put_back_or_deleted(
    happened: list[tuple[str, int]], held_max: int
) -> None:
    log = LogInMemory()
    letters = DeadLettersInMemory(log, held_max=held_max)
    wanted = [original(log, b"%d" % n, partition=n % PARTITIONS) for n in range(ORIGINALS)]
    waiting: dict[int, MessageID] = {}
    for what, number in happened:
        letter = DeadLetter(
            wanted[number], None, "why", 1, waiting.get(number, MessageID(9)), group="g"
        )
        if what == "put":
            letters.put([letter])
            if number not in waiting:
                waiting[number] = log.messages[-1].id
        else:
            (letters.redrive if what == "redrive" else letters.delete)([letter])
            waiting.pop(number, None)
    found = list(letters.waiting(group="g"))
    once = {int(each.message.value): each.id for each in found}
    assert once.keys() == waiting.keys()
    if held_max >= ORIGINALS:  # Fewer hold some back, and may find a later one of the same message.
        assert once == waiting
        assert len(found) == len(once)
