"""A message that waits for its time lies in one place, whatever gets lost, and although others
write meanwhile.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from hqueue.errors import Outcome, StoreUnavailableError
from hqueue.metadata import delay_records, delays
from hqueue.metadata.delay_records import decode_delayed
from hqueue.metadata.delays import Delayed
from hqueue.metadata.ports import ANY, Record, Version
from hqueue.metadata.steps import Create, Delete, Pause, Read, Write
from hqueue.sharing import delays as window_delays
from hqueue.sharing import shared_partition
from hqueue.sharing.held import Answer
from hqueue.sharing.share_options import ShareSettings
from hqueue.sharing.window import Window
from hqueue.sharing.window_record import decode_window
from tests.model.groups.world import ViolationError
from tests.model.mutants import executed

from .consumer import LOCK_MS, PATH, State, begun
from .rules import ALL_RULES, Code

MESSAGES = 7
FAULTS = ("lost request", "late request", "lost answer", "crash", "overtaken")
ROUNDS_MAX = 20


@pytest.fixture(autouse=True)
def merged_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "MERGED_TOGETHER", 3)


class Store:
    """Records, by their paths."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def do(self, step: Any) -> Any:
        known = self.records
        if isinstance(step, Read):
            return {key: known[key] for key in step.keys if key in known}
        if isinstance(step, Create):
            for key, value in step.values.items():
                known.setdefault(key, Record(value, Version(0), 0))
            return {key: known[key] for key in step.values}
        if isinstance(step, Write):
            return {key: self._change(key, *change) for key, change in step.changes.items()}
        assert isinstance(step, Delete)
        for key, version in step.versions.items():
            if key in known and version in (ANY, known[key].version):
                del known[key]
        return [key for key in step.versions if key in known]

    def _change(self, key: str, value: bytes, version: Version) -> Version | None:
        if key not in self.records or self.records[key].version != version:
            return None
        self.records[key] = Record(value, Version(version + 1), 0)
        return self.records[key].version


class World:
    """Two consumers of a group, and what goes wrong.

    Args:
        code: what they run.
        faults: what happens at which step.
    """

    def __init__(self, code: Code, faults: Mapping[int, str]) -> None:
        self._code = code
        self._faults = dict(faults)
        self.store = Store()
        self.steps = 0
        self.time_ms = 0
        self.now_ms = 0.0
        self.done: set[int] = set()
        """What a program has acknowledged."""
        self._late: list[Any] = []
        self._names = itertools.count()
        self.consumers = [self._begun(), self._begun()]

    def _begun(self) -> State:
        settings = ShareSettings(LOCK_MS, None, ordered_by_key=False)
        return begun(self._code, f"c{next(self._names)}", (None,) * MESSAGES, settings)

    def exchange(self, number: int, messages_max: int) -> None:
        """A consumer writes its answers, and takes messages."""
        partition = self._partition(number)
        with contextlib.suppress(StoreUnavailableError, InterruptedError):
            self._carry_out(partition.exchange.steps(messages_max), number)

    def look(self, number: int) -> None:
        """A consumer looks at the group's record."""
        self._partition(number).see(self.store.records.get(PATH))

    def say(self, number: int, message_id: int, due_ms: int | None) -> None:
        """A program acknowledges a message, or releases it for later."""
        held = self._partition(number).held.get(message_id)
        if held is None:
            return
        held.delivered = True
        held.answer = Answer.DONE if due_ms is None else Answer.RELEASE
        held.due_ms = due_ms
        if due_ms is None:
            self.done.add(message_id)

    def held(self, number: int) -> list[int]:
        """What a consumer has, and has not answered."""
        held = self._partition(number).held
        return sorted(each for each, one in held.items() if one.answer is None)

    def _partition(self, number: int) -> Any:
        state = self.consumers[number]
        state.clock.now_ms, state.clock.time_ms = self.now_ms, self.time_ms
        return state.partition

    def _carry_out(self, work: Iterator[Any], number: int) -> None:
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = work.send(answer) if error is None else work.throw(error)  # type: ignore[attr-defined]
            except StopIteration:
                return
            answer = error = None
            if isinstance(step, Pause):
                continue
            try:
                answer = self._do(step, number)
            except StoreUnavailableError as exc:
                error = exc
            if not isinstance(step, Read):
                self.check()

    def _do(self, step: Any, number: int) -> Any:
        fault = self._faults.pop(self.steps, None)
        self.steps += 1
        if fault == "overtaken":
            self.exchange(1 - number, 1)
        if fault == "crash":
            self.consumers[number] = self._begun()
            raise InterruptedError
        unavailable = StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN)
        if fault == "lost request":
            raise unavailable
        if fault == "late request":
            self._late.append(step)
            raise unavailable
        if self._late and isinstance(step, Write):
            late, self._late = self._late, []
            for each in late:
                self.store.do(each)
            self.check()
        answer = self.store.do(step)
        if fault == "lost answer":
            raise unavailable
        return answer

    # What must hold.

    def check(self) -> None:
        """Each message is in one place, or done."""
        places = self.places()
        for each in range(1, MESSAGES + 1):
            if places[each] > 1 or (not places[each] and each not in self.done):
                raise ViolationError(f"{each} is in {places[each]} places")

    def places(self) -> Counter[int]:
        """In how many places each message is that is not done."""
        places: Counter[int] = Counter()
        if PATH not in self.store.records:
            return Counter(range(1, MESSAGES + 1))
        window = _window(self.store.records[PATH].value)
        places.update(range(window.end, MESSAGES + 1))
        for span in window.each:
            if not span.is_done:
                places.update(each for each in range(span.begin, span.end) if each <= MESSAGES)
        moved = {each.name: (each.due_ms, each.id) for each in window.moves}
        for name in {*moved, *(each.name for each in window.delays)}:
            record = self.store.records.get(f"{PATH}/{name}")
            waiting = () if record is None else _delayed(record.value)
            after = moved.get(name, (-1, -1))
            places.update(each.id for each in waiting if (each.due_ms, each.id) > after)
        return places


@functools.lru_cache(maxsize=4_096)
def _window(value: bytes) -> Window:
    return decode_window(value, PATH)


@functools.lru_cache(maxsize=4_096)
def _delayed(value: bytes) -> tuple[Delayed, ...]:
    return tuple(decode_delayed(value, PATH))


def play(code: Code, faults: Mapping[int, str]) -> World:
    """Two consumers release messages for later, one by one, and again, until all are done.

    Raises:
        ViolationError: a message was lost, or is in two places.
    """
    world = World(code, faults)
    world.exchange(0, 5)
    for each in world.held(0):
        world.say(0, each, 10 * each)
        world.exchange(0, 0)
        if each % 2:
            world.exchange(1, 1)
    world.time_ms = 35
    for number in (0, 1, 0):
        world.exchange(number, 2)
        for each in world.held(number):
            world.say(number, each, 50 + each if each % 3 else None)
            world.exchange(number, 0)
    world.time_ms = 1_000
    rounds = 0
    while world.places():
        rounds += 1
        if rounds == ROUNDS_MAX:
            raise ViolationError(f"{world.places()} never come")
        world.now_ms += 2 * LOCK_MS
        for number in (0, 1):
            world.look(number)
            world.exchange(number, 9)
            for each in world.held(number):
                world.say(number, each, None)
            world.exchange(number, 0)
    for number in (0, 1):
        world.exchange(number, 1)
    return world


def test_without_faults_no_record_is_left_over() -> None:
    world = play(ALL_RULES, {})
    assert world.done == set(range(1, MESSAGES + 1))
    assert list(world.store.records) == [PATH]


def every_fault() -> Iterator[dict[int, str]]:
    steps = play(ALL_RULES, {}).steps
    for number, fault in itertools.product(range(steps), FAULTS):
        yield {number: fault}


def test_no_fault_loses_a_message_or_doubles_it() -> None:
    left_over = Counter[str]()
    for faults in every_fault():
        world = play(ALL_RULES, faults)
        assert world.done == set(range(1, MESSAGES + 1)), faults
        (fault,) = faults.values()
        left_over[fault] += len(world.store.records) - 1
    # One that ends in between leaves what nobody names, or whose last request is its deletion.
    assert left_over.total() - left_over["crash"] <= 3


@pytest.mark.larger
def test_no_two_faults_lose_a_message_or_double_it() -> None:
    steps = play(ALL_RULES, {}).steps
    for first, later, one, other in itertools.product(range(steps), range(1, 5), FAULTS, FAULTS):
        world = play(ALL_RULES, {first: one, first + later: other})
        assert world.done == set(range(1, MESSAGES + 1))


@dataclasses.dataclass(frozen=True)
class Mutant:
    edits: tuple[tuple[str, str], ...]
    module: types.ModuleType


MUTANTS = {
    "what is merged is deleted after the write": Mutant(
        (
            (
                "        messages.sort()\n",
                "        yield from self.drop.steps(each.name for each in merged)\n"
                "        messages.sort()\n",
            ),
        ),
        delay_records,
    ),
    "records are made before the write": Mutant(
        (("        yield Create(values)\n", "        self._values = values\n"),), delay_records
    ),
    "after a write that was refused, only what was made for it is deleted": Mutant(
        (
            (
                "if made and (yield from self.drop.steps(made)):",
                "if made and (yield from self.drop.steps(self._doubtful)):",
            ),
        ),
        delay_records,
    ),
    "what is named is not deleted": Mutant(
        (("self._doubtful.difference_update(named)", "pass"),), delay_records
    ),
    "what was merged is named no more": Mutant(
        (("[each for each in delays if each not in merged]", "list(delays)"),), delay_records
    ),
    "what was moved is taken out before anything else is moved": Mutant(
        (("        settled = yield from self._settled(window)\n", "        settled = window\n"),),
        window_delays,
    ),
    "a lock on a message that was late is waited for, too": Mutant(
        (("            for span in window.each\n", "            for span in window.spans\n"),),
        shared_partition,
    ),
    "a move says how far": Mutant(
        (("            window = window._replace(\n                late=",
          "            move = move._replace(id=0)\n            window = window._replace(\n"
          "                late="),),
        window_delays,
    ),
}  # fmt: skip


def mutated(mutant: Mutant, rule: str) -> Code:
    base = vars(delay_records)
    if mutant.module is delay_records:
        base = executed(delay_records, mutant.edits, rule)
    edits = mutant.edits if mutant.module is window_delays else ()
    own = executed(window_delays, edits, rule)["WindowDelays"]
    kept = {k: v for k, v in vars(own).items() if k not in ("__dict__", "__weakref__")}
    edits = mutant.edits if mutant.module is shared_partition else ()
    partition = executed(shared_partition, edits, rule)
    partition["WindowDelays"] = type("WindowDelays", (base["DelayRecords"],), kept)
    return Code(partition["SharedPartition"])


@pytest.mark.thorough("that each rule is needed; `make check` shows that all of them suffice")
@pytest.mark.parametrize("rule", MUTANTS)
def test_every_rule_of_delays_is_needed(rule: str) -> None:
    code = mutated(MUTANTS[rule], rule)

    def play_all() -> None:
        play(code, {})
        for faults in every_fault():
            play(code, faults)

    with pytest.raises(ViolationError):
        play_all()
