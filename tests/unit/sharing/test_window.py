"""What has become of each message of a partition: decisions without a store."""

from __future__ import annotations

import dataclasses
import random

import pytest

from hqueue.errors import UnsupportedFormatError
from hqueue.metadata.delays import DELAYS_MAX, Delay, Delayed
from hqueue.metadata.ports import VALUE_BYTES_MAX
from hqueue.sharing.acquisition import Part, Taken, acquire, answered, wanted
from hqueue.sharing.delays import MOVES_MAX, takes_delays
from hqueue.sharing.held import Answer
from hqueue.sharing.window import (
    DONE,
    NO_KEY,
    Fate,
    LetterCounts,
    Mark,
    Move,
    Span,
    Window,
    split,
)
from hqueue.sharing.window_record import WINDOW_MESSAGES_MAX, decode_window, encode_window

OWN = Mark(Fate.ACQUIRED, 0, "me", 1, 1_000)
OTHER = Mark(Fate.ACQUIRED, 1, "other", 7, 500)


def held(deliveries: int = 1) -> Mark:
    return OWN._replace(deliveries=deliveries)


def available(deliveries: int = 0) -> Mark:
    return Mark(Fate.AVAILABLE, deliveries)


def is_available(span: Span) -> bool:
    return span.mark.fate is Fate.AVAILABLE


def is_free(span: Span) -> bool:
    return span.mark.holder != "me"


def test_what_nobody_has_had_is_taken_up_to_as_many_as_are_wanted() -> None:
    window, taken, _ = acquire(
        Window(10), [Part(10, 100, [20, 21, 50])], OWN, is_available, messages_max=2
    )
    assert taken == [Taken(20, 1), Taken(21, 1)]
    assert window == Window(10, (Span(10, 50, 2, held()),))
    window, taken, _ = acquire(window, [Part(50, 100, [50])], OWN, is_available, messages_max=2)
    assert taken == [Taken(50, 1)]
    assert window == Window(10, (Span(10, 100, 3, held()),))


def test_a_part_that_begins_elsewhere_gives_nothing() -> None:
    for part in (Part(11, 100, [20]), Part(0, 10, [5])):
        assert acquire(Window(10), [part], OWN, is_available, messages_max=2) == (
            Window(10),
            [],
            [],
        )


def test_what_was_released_comes_first_and_counts_once_more() -> None:
    before = Window.of(
        10, [Span(10, 20, 2, OTHER), Span(20, 30, 2, available(3)), Span(30, 40, 1, OTHER)]
    )
    assert wanted(before, is_available, 5) == [before.spans[1]]
    parts = [Part(20, 30, [22, 25]), Part(40, 60, [41, 42])]
    window, taken, _ = acquire(before, parts, OWN, is_available, messages_max=3)
    assert taken == [Taken(22, 4), Taken(25, 4), Taken(41, 1)]
    assert window.spans == (
        Span(10, 20, 2, OTHER),
        Span(20, 30, 2, held(4)),
        Span(30, 40, 1, OTHER),
        Span(40, 42, 1, held()),
    )


def test_of_a_span_that_was_read_in_part_the_rest_stays() -> None:
    before = Window.of(0, [Span(0, 100, 9, available(1))])
    window, taken, _ = acquire(before, [Part(0, 50, [1, 2, 3])], OWN, is_available, messages_max=10)
    assert [each.id for each in taken] == [1, 2, 3]
    assert window.spans == (Span(0, 4, 3, held(2)), Span(4, 100, 6, available(1)))


def test_what_has_expired_meanwhile_is_done() -> None:
    before = Window.of(0, [Span(0, 100, 9, available(1)), Span(100, 200, 1, OTHER)])
    window, taken, _ = acquire(before, [Part(0, 100, [])], OWN, is_available, messages_max=10)
    assert taken == []
    assert window == Window(100, (Span(100, 200, 1, OTHER),))


def test_answers_part_a_span_and_what_is_done_before_all_else_is_forgotten() -> None:
    window = acquire(
        Window(0), [Part(0, 100, [1, 2, 3, 4])], OWN, is_available, messages_max=10
    ).window
    window = answered(window, "me", [1, 2, 3, 4], {1: DONE, 3: available(1)})
    assert window == Window(
        2, (Span(2, 3, 1, held()), Span(3, 4, 1, available(1)), Span(4, 100, 1, held()))
    )
    window = answered(window, "me", [2, 4], {2: DONE, 4: DONE})
    assert window == Window(3, (Span(3, 4, 1, available(1)), Span(4, 100, 1, DONE)))
    assert (window.unfinished, window.acquired, window.done) == (1, 0, 1)


def test_what_others_have_since_takes_no_answer() -> None:
    before = Window.of(0, [Span(0, 10, 2, OTHER)])
    assert answered(before, "me", [1, 2], {1: DONE, 2: DONE}) == before


def test_a_dead_letter_is_counted_by_the_answer_that_ends_its_message() -> None:
    late = Span(0, 1, 1, held(3))
    window = Window.of(1, [Span(1, 10, 4, held()), Span(10, 20, 1, OTHER)], [late])
    window = window._replace(dead_letters=LetterCounts(5, 7))
    marks = {0: DONE, 1: DONE, 2: DONE, 3: available(1), 11: DONE}
    answers = {
        0: Answer.EXHAUSTED,
        1: Answer.REJECTED,
        2: Answer.DONE,
        3: Answer.RELEASE,
        11: Answer.REJECTED,
    }
    ids = [0, 1, 2, 3, 4, 11]
    after = answered(window, "me", ids, marks, answers=answers)
    assert after.dead_letters == LetterCounts(6, 8)
    assert answered(after, "me", ids, marks, answers=answers).dead_letters == LetterCounts(6, 8)
    more = acquire(after, [Part(20, 30, [21])], OWN, is_available, messages_max=9).window
    assert more.end == 30
    assert more.dead_letters == LetterCounts(6, 8)


def test_what_was_acquired_without_an_answer_is_given_back() -> None:
    before = Window.of(0, [Span(0, 10, 2, held(3)), Span(10, 20, 1, held(1))])
    after = answered(before, "me", [11], {})
    assert after.spans == (Span(0, 10, 2, available(2)), Span(10, 20, 1, held(1)))


def test_a_message_waits_for_every_earlier_one_of_its_key() -> None:
    before = Window.of(0, [Span(0, 10, 1, OTHER, frozenset({7}))])
    part = Part(10, 20, [11, 12, 13, 14], [7, 8, NO_KEY, 7])
    window, taken, _ = acquire(before, [part], OWN, is_available, messages_max=10)
    assert [each.id for each in taken] == [12, 13]
    assert window.spans == (
        Span(0, 10, 1, OTHER, frozenset({7})),
        Span(10, 12, 1, available(), frozenset({7})),
        Span(12, 14, 2, held(), frozenset({8})),
        Span(14, 20, 1, available(), frozenset({7})),
    )
    assert wanted(window, is_available, 10) == []
    freed = answered(window, "other", [1], {1: DONE}, {1: 7})
    assert [span.begin for span in wanted(freed, is_available, 10)] == [10, 14]


def test_no_more_are_unfinished_than_a_record_has_room_for() -> None:
    ids = range(1, 2 * WINDOW_MESSAGES_MAX)
    window, taken, _ = acquire(
        Window(0), [Part(0, 10**6, ids)], OWN, is_available, messages_max=10**6
    )
    assert len(taken) == window.unfinished == WINDOW_MESSAGES_MAX
    more = Part(window.end, 10**6, ids[WINDOW_MESSAGES_MAX:])
    assert acquire(window, [more], OWN, is_available, messages_max=10) == (window, [], [])


@pytest.mark.parametrize("by_key", [False, True])
def test_the_largest_record_fits_into_every_store(by_key: bool) -> None:
    chance = random.Random(1)
    at, spans = 1 << 62, []
    for number in range(WINDOW_MESSAGES_MAX):
        for fate in (Fate.ACQUIRED, Fate.DONE):
            end = at + chance.randrange(1, 1 << 40)
            mark = DONE
            if fate is Fate.ACQUIRED:
                holder = f"{chance.randrange(300):0250d}"
                mark = Mark(fate, number % 90, holder, chance.randrange(10**6), 30_000)
            keys = frozenset({chance.randrange(4_096)}) if by_key and mark != DONE else frozenset()
            spans.append(Span(at, end, 1, mark, keys))
            at = end
    names = [f"{chance.getrandbits(128):032x}" for _ in range(DELAYS_MAX + 100)]
    delays = [Delay(each, chance.randrange(1 << 41), chance.randrange(1, 10_000)) for each in names]
    moves = [Move(each, 1 << 41, at + number) for number, each in enumerate(names[:MOVES_MAX])]
    window = Window.of(1 << 62, spans)._replace(
        delays=tuple(delays), moves=tuple(moves), dead_letters=LetterCounts(2**53, 2**53)
    )
    assert len(window.spans) == 2 * WINDOW_MESSAGES_MAX
    record = encode_window(window, "w")
    assert len(record) < VALUE_BYTES_MAX
    assert decode_window(record, "p") == window


def test_what_has_a_time_to_come_is_delayed_and_holds_up_nothing() -> None:
    part = Part(0, 100, [1, 2, 3, 4], None, {2: 500, 3: 2_000})
    got = acquire(Window(0), [part], OWN, is_available, messages_max=2, now_ms=1_000)
    assert got.taken == [Taken(1, 1), Taken(2, 1)]
    assert got.delayed == []
    got = acquire(Window(0), [part], OWN, is_available, messages_max=3, now_ms=400)
    assert got.taken == [Taken(1, 1), Taken(4, 1)]
    assert got.delayed == [Delayed(500, 2, 0), Delayed(2_000, 3, 0)]
    assert got.window.spans == (
        Span(0, 2, 1, held()),
        Span(2, 4, 2, DONE),
        Span(4, 100, 1, held()),
    )


def test_without_room_for_delays_nothing_is_taken_behind_what_has_a_time_to_come() -> None:
    part = Part(0, 100, [1, 2, 3, 4], None, {2: 500, 3: 2_000})
    for most, taken, delayed in ((0, [1], []), (1, [1], [2]), (2, [1, 4], [2, 3])):
        got = acquire(
            Window(0), [part], OWN, is_available, messages_max=9, now_ms=400, delayed_max=most
        )
        assert [each.id for each in got.taken] == taken
        assert [each.id for each in got.delayed] == delayed
        assert got.window.end == [2, 3, 100][most]
    got = acquire(Window(0), [part], OWN, is_available, messages_max=9, now_ms=2_000, delayed_max=0)
    assert [each.id for each in got.taken] == [1, 2, 3, 4]
    full = Window(0, delays=(Delay("", 0, 1),) * (DELAYS_MAX - 1))
    assert takes_delays(full)
    assert not takes_delays(full._replace(moves=(Move("", 0, 0),)))


def test_a_late_message_comes_first_whatever_its_header_says() -> None:
    late = Span(7, 8, 1, available(2))
    before = Window.of(50, [Span(50, 60, 1, OTHER)], [late])
    assert wanted(before, is_available, 5) == [late]
    parts = [Part(7, 8, [7], None, {7: 9_999}), Part(60, 70, [61])]
    got = acquire(before, parts, OWN, is_available, messages_max=2, now_ms=0)
    assert got.taken == [Taken(7, 3), Taken(61, 1)]
    assert got.window.late == (Span(7, 8, 1, held(3)),)
    after = answered(got.window, "me", [7, 61], {7: DONE})
    assert after == Window(50, got.window.spans)
    assert decode_window(encode_window(got.window, "w"), "p") == got.window


GOLDEN = (
    b'{"version": 1, "begin": "1700000000000-1", "writer": "h:1/3", '
    b'"spans": [[2, 1, 2, 1, 0, 3], [1, 2, 1], [32768, 0, 1, 2, [5, 9]]], '
    b'"holders": [["h:1", 30000]]}'
)


GOLDEN_DELAYS = (
    b'{"version": 1, "begin": "0-7", "writer": "w", "spans": [], "late": [[3, 0, 1, 2]], "delays": '
    b'[["0123456789abcdef0123456789abcdef", 1700000000000, 16]], '
    b'"moves": [["00112233445566778899aabbccddeeff", 1600000000000, 5]], "holders": []}'
)


def test_a_record_with_delays_is_read_as_it_was_written() -> None:
    window = Window(
        7,
        late=(Span(3, 4, 1, available(2)),),
        delays=(Delay("0123456789abcdef0123456789abcdef", 1_700_000_000_000, 16),),
        moves=(Move("00112233445566778899aabbccddeeff", 1_600_000_000_000, 5),),
    )
    assert encode_window(window, "w") == GOLDEN_DELAYS
    assert decode_window(GOLDEN_DELAYS, "p") == window
    for wrong in ((b", 16]", b", 0]"), (b", 5]", b", -1]"), (b'"001', b'"0/1')):
        with pytest.raises(UnsupportedFormatError):
            decode_window(GOLDEN_DELAYS.replace(*wrong), "p")


GOLDEN_LETTERS = (
    b'{"version": 1, "begin": "0-7", "writer": "w", "spans": [], "dead_letters": [3, 1], '
    b'"holders": []}'
)


def test_a_record_with_dead_letters_is_read_as_it_was_written() -> None:
    window = Window(7, dead_letters=LetterCounts(rejected=3, exhausted=1))
    assert encode_window(window, "w") == GOLDEN_LETTERS
    assert decode_window(GOLDEN_LETTERS, "p") == window
    for wrong in (b"[3, -1]", b"[3]", b"[3, 1, 1]", b"[3, true]", b"[1e99, 1]", b"7"):
        with pytest.raises(UnsupportedFormatError):
            decode_window(GOLDEN_LETTERS.replace(b"[3, 1]", wrong), "p")


def test_a_record_is_read_as_it_was_written() -> None:
    begin = (1_700_000_000_000 << 15) + 1
    window = Window.of(
        begin,
        [
            Span(begin, begin + 2, 2, Mark(Fate.ACQUIRED, 1, "h:1", 3, 30_000)),
            Span(begin + 2, begin + 3, 1, DONE),
            Span(begin + 3, begin + 3 + 32_768, 1, available(2), frozenset({5, 9})),
        ],
    )
    assert encode_window(window, "h:1/3") == GOLDEN
    assert decode_window(GOLDEN, "p") == window


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"spans": [[2,', b'"spans": [[0,'),
        (b'"spans": [[2,', b'"spans": [[9223372036854775807,'),
        (b"[1, 2, 1]", b"[1, 3, 1]"),
        (b"[1, 2, 1]", b"[1, 2]"),
        (b"[1, 2, 1]", b"[1, 2, -1]"),
        (b"0, 3]", b"1, 3]"),
        (b"[5, 9]", b"[5, 4096]"),
        (b'"writer"', b'"packed": "eJw=", "writer"'),
        (b'"1700000000000-1"', b'"x"'),
        (b"30000", b"0"),
    ],
)
def test_what_no_release_writes_is_refused(old: bytes, new: bytes) -> None:
    wrong = GOLDEN.replace(old, new)
    assert wrong != GOLDEN
    with pytest.raises(UnsupportedFormatError):
        decode_window(wrong, "p")


@dataclasses.dataclass
class Consumer:
    """What a consumer knows in `test_any_order_of_steps_…`."""

    name: str
    held: set[int] = dataclasses.field(default_factory=set)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("by_key", [False, True])
def test_any_order_of_steps_keeps_each_message_in_one_place(seed: int, by_key: bool) -> None:
    chance = random.Random(seed)
    ids = sorted(chance.sample(range(1, 500), 60))
    slot_of = {each: chance.choice([NO_KEY, 1, 2, 3]) for each in ids}
    window, done = Window(0), set[int]()
    consumers = [Consumer("a"), Consumer("b")]
    steps = 0
    while len(done) < len(ids):
        steps += 1
        assert steps < 5_000
        one = chance.choice(consumers)
        own = Mark(Fate.ACQUIRED, 0, one.name, steps, 1_000)
        marks: dict[int, Mark] = {}
        for each in chance.sample(sorted(one.held), min(len(one.held), chance.randrange(6))):
            marks[each] = chance.choice([DONE, DONE, available(1), own._replace(deliveries=1)])
        slots = slot_of if by_key else None
        window = answered(window, one.name, sorted(one.held), marks, slots)
        done |= {each for each, mark in marks.items() if mark == DONE}
        one.held -= {each for each, mark in marks.items() if mark.fate is not Fate.ACQUIRED}
        parts = [
            part_of(begin, ids, slot_of if by_key else None, chance)
            for begin in {window.end, *(span.begin for span in window.spans if is_available(span))}
        ]
        before = window
        window, taken, _ = acquire(
            before, parts, own, is_available, messages_max=chance.randrange(8)
        )
        for each in taken:
            assert all(each.id not in other.held for other in consumers)
            assert each.id not in done
            if by_key and slot_of[each.id] != NO_KEY:
                earlier = {i for i in ids if i < each.id and slot_of[i] == slot_of[each.id]}
                assert earlier <= done | one.held | {t.id for t in taken}
        one.held |= {each.id for each in taken}
        check(window, ids, done, consumers)
    assert window.spans == ()


def part_of(
    begin: int, ids: list[int], slot_of: dict[int, int] | None, chance: random.Random
) -> Part:
    end = begin + chance.randrange(1, 120)
    found = [each for each in ids if begin <= each < end]
    return Part(begin, end, found, None if slot_of is None else [slot_of[i] for i in found])


def check(window: Window, ids: list[int], done: set[int], consumers: list[Consumer]) -> None:
    assert all(each in done for each in ids if each < window.begin)
    at = window.begin
    for span in window.spans:
        assert span.begin == at < span.end
        at = span.end
        inside = [each for each in ids if span.begin <= each < span.end]
        assert len(inside) == span.messages
        for each in inside:
            assert (each in done) == span.is_done
            holders = [one.name for one in consumers if each in one.held]
            assert holders == ([span.mark.holder] if span.mark.fate is Fate.ACQUIRED else [])


def test_a_split_keeps_every_message() -> None:
    span = Span(0, 100, 3, available(), frozenset({1, 2}))
    parts = split(span, [5, 50, 60], [DONE, held(), DONE], [1, 2, NO_KEY], whole=True)
    assert parts == [
        Span(0, 50, 1, DONE),
        Span(50, 60, 1, held(), frozenset({2})),
        Span(60, 100, 1, DONE),
    ]
