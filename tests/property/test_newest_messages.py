"""Up to where topics have messages: a *no* is certain, and each header is read once."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from hqueue import Message
from hqueue.errors import StoreUnavailableError
from hqueue.format.cells import encode_bodies
from hqueue.format.control import encode_fences
from hqueue.format.header import Bodies
from hqueue.log.newest import NewestMessages
from hqueue.log.ports import Row
from hqueue.log.walk import WALKED_HEADERS
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline, drive
from tests.support.chain import Chain

TOPICS = "abc"

batches = st.lists(st.sampled_from(TOPICS), max_size=4)
"""The topics of a batch's messages, in their order; a control record if there are none."""
questions = st.tuples(st.sampled_from(TOPICS), st.integers(0, 60), st.integers(0, 60))
steps = st.lists(
    st.one_of(batches, questions, st.sampled_from(["truncate", "collect"])), max_size=60
)


def bodies_of(topics: list[str]) -> Bodies:
    if not topics:
        return next(iter(encode_fences({"a": 1})))
    return encode_bodies([Message(topic, b"x") for topic in topics])


def ask(
    known: NewestMessages,
    chain: Chain,
    topic: str,
    start: int,
    stop: int,
    *,
    bound_ms: int = 10_000,
) -> bool:
    deadline = Deadline(SYSTEM_CLOCK, bound_ms)
    return drive(known.may_have(topic, start, stop, deadline), chain, deadline)


@given(steps, st.sampled_from([1, 2, 40]), st.sampled_from([1, 2, 1_000]))
@example([["a"], ("a", 0, 60), "truncate", ["b"], ("b", 0, 60), ("a", 0, 60)], 40, 1_000)
def test_a_no_is_certain(
    steps: list[list[str] | tuple[str, int, int] | str], pages: int, topics_max: int
) -> None:
    chain = Chain()
    known = NewestMessages(0, pages_max=pages, topics_max=topics_max)
    messages: list[tuple[int, str]] = []
    for step in steps:
        if step == "truncate":
            chain.truncate(now=chain.end.slot + 5)
            messages = []
        elif step == "collect":
            chain.collect(1)
            oldest = chain.rows[0].slot if chain.rows else chain.end.slot
            messages = [each for each in messages if each[0] >= oldest]
            if not chain.rows:
                chain.truncate(now=chain.end.slot + 5)
        elif isinstance(step, tuple):
            topic, first, last = step
            start, stop = first, min(first + last, chain.end.slot)
            if start >= stop:
                continue
            answer = ask(known, chain, topic, start, stop)
            assert len(known) <= topics_max
            has = any(start <= each < stop and name == topic for each, name in messages)
            assert answer or not has
        else:
            base = chain.append(bodies_of(step))  # type: ignore[arg-type]
            messages += [(base + number, topic) for number, topic in enumerate(step)]


@given(st.lists(batches, min_size=1, max_size=40), st.lists(questions, max_size=30))
def test_a_yes_is_right_where_nothing_is_in_the_way(
    batches: list[list[str]], questions: list[tuple[str, int, int]]
) -> None:
    chain = Chain()
    newest: dict[str, int] = {}
    for topics in batches:
        base = chain.append(bodies_of(topics))
        for number, topic in enumerate(topics):
            scattered = encode_bodies([Message(each, b"x") for each in topics])
            of_batch = base + (scattered.count - 1 if _is_scattered(topics, topic) else number)
            newest[topic] = max(newest.get(topic, -1), of_batch)
    known = NewestMessages(0)
    for topic, start, _ in questions:
        if start < chain.end.slot:
            assert ask(known, chain, topic, start, chain.end.slot) == (
                newest.get(topic, -1) >= start
            )


def _is_scattered(topics: list[str], topic: str) -> bool:
    places = [place for place, each in enumerate(topics) if each == topic]
    return places[-1] - places[0] >= len(places)


@given(st.permutations(range(20)))
def test_each_header_is_read_once_from_whereever_it_is_asked(order: list[int]) -> None:
    chain = Chain()
    bases = [chain.append(bodies_of([])) for _ in range(200)]
    known = NewestMessages(0)
    for number in order:
        assert not ask(known, chain, "a", bases[number * 10], chain.end.slot)
    # Who asks for what lies before has a page read that may go on into what was read.
    assert chain.given <= 200 * sum(
        number == min(order[: place + 1]) for place, number in enumerate(order)
    )
    chain.given = 0
    for number in order:
        assert not ask(known, chain, "a", bases[number * 10], chain.end.slot)
    assert chain.given == 0
    chain.append(bodies_of(["a"]))
    assert ask(known, chain, "a", bases[0], chain.end.slot)
    assert chain.given == 1


def test_what_lies_too_far_back_is_left_to_a_scan_and_others_are_answered() -> None:
    chain = Chain()
    bases = [chain.append(bodies_of([])) for _ in range(5 * WALKED_HEADERS)]
    known = NewestMessages(0, pages_max=2)
    assert ask(known, chain, "a", bases[0], chain.end.slot)
    assert chain.given == 2 * WALKED_HEADERS
    assert ask(known, chain, "a", bases[10], chain.end.slot)
    assert chain.given == 2 * WALKED_HEADERS, "that is known to be too far"
    assert not ask(known, chain, "a", bases[-100], chain.end.slot)
    assert not ask(known, chain, "a", bases[-200], chain.end.slot)
    assert ask(known, chain, "a", bases[2 * WALKED_HEADERS + 100], chain.end.slot)


def test_a_store_that_answers_in_part_leaves_what_was_learned() -> None:
    chain = Chain()
    bases = [chain.append(bodies_of([])) for _ in range(3 * WALKED_HEADERS)]
    answers = iter([True, False])
    full = chain.headers

    def headers(partition: int, start: int, limit: int) -> list[Row]:
        if not next(answers, True):
            raise StoreUnavailableError("away")
        return full(partition, start, limit)

    chain.headers = headers  # type: ignore[method-assign]
    known = NewestMessages(0)
    try:
        ask(known, chain, "a", bases[0], chain.end.slot, bound_ms=0)
    except StoreUnavailableError:
        given = chain.given
    assert given == WALKED_HEADERS
    assert not ask(known, chain, "a", bases[0], chain.end.slot)
    assert chain.given == 3 * WALKED_HEADERS


def test_a_header_that_cannot_be_read_is_left_to_a_scan() -> None:
    chain = Chain()
    for _ in range(3):
        chain.append(bodies_of([]))
    broken = chain.rows[1]
    chain.rows[1] = Row(broken.key, 0, broken.slot, b"HQ?", {})
    known = NewestMessages(0)
    assert ask(known, chain, "a", 0, chain.end.slot)
    assert not ask(known, chain, "a", chain.rows[2].slot, chain.end.slot)


def test_of_a_log_that_ends_before_nothing_is_said() -> None:
    chain = Chain()
    chain.append(bodies_of([]))
    known = NewestMessages(0)
    assert ask(known, chain, "a", 0, chain.end.slot + 1), "another server may know more"
