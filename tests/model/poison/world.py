"""One subscriber's process, workers that call it, and messages that end it or make it hang."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue_workers.delivery.suspects import cleared, messages_max, unanswered
from hqueue_workers.delivery.wire import Call
from tests.model.groups.world import ViolationError

__all__ = ["Action", "Bounds", "Rules", "World"]

Action = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules that workers keep. Each is taken out once."""

    counts_only_what_the_process_got: bool = True
    forgets_the_count_of_what_is_done: bool = True
    halves_before_it_condemns: bool = True
    condemns_only_what_was_alone_as_often: bool = True
    keeps_the_count: bool = True
    calls_what_is_suspected_alone: bool = True
    asks_for_lower_partitions: bool = True
    counts_nothing_while_a_call_hangs: bool = True


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What there is, and what may happen at most.

    Args:
        messages: how many each partition has.
        poison: the partition and the number of each message that is fatal.
        workers: which worker has each partition.
        hangs: whether a fatal message makes the process hang, until it is restarted.
        calls_max: the setting `unanswered_calls_max`.
        restarts: of workers.
        accidents: how often the process ends for another reason while a call from each message on
            is under way.
        asks: whether workers can ask what is suspected in other partitions: hubs can't.
        ends_max: how often messages may end the process until they are found.
    """

    messages: tuple[int, ...] = (2,)
    poison: frozenset[tuple[int, int]] = frozenset({(0, 0)})
    workers: tuple[int, ...] = (0,)
    hangs: bool = False
    calls_max: int = 2
    restarts: int = 0
    accidents: int = 0
    asks: bool = True
    ends_max: int = 99


@dataclasses.dataclass
class _Partition:
    """A partition, and what its worker knows."""

    position: int = 0
    suspected: UnansweredCalls | None = None
    end: int | None = None
    """Where a call ended that is made once more."""
    stored: tuple[int, UnansweredCalls | None] = (0, None)
    under_way: tuple[int, int] | None = None
    """The messages of the call under way."""
    dead: tuple[int, ...] = ()


class World:
    """A process, and everything that can happen next around it. It handles one call at a time, and
    the calls that it got end with it.

    Args:
        bounds: what there is, and what may happen at most.
        rules: those that are kept.
    """

    def __init__(self, bounds: Bounds, rules: Rules = Rules()) -> None:
        self.bounds, self.rules = bounds, rules
        self._restarts_left = bounds.restarts
        self._accidents: dict[tuple[int, int], int] = {}
        """How many there were while a call from a message on was under way."""
        self._partitions = [_Partition() for _ in bounds.messages]
        self._is_up = True
        self._handling: int | None = None
        """The partition whose call hangs."""
        self._watched: frozenset[int] = frozenset()
        """The workers that know of a call that hangs."""
        self._ends = 0

    def copied(self) -> World:
        """The same in the same state."""
        other = copy.copy(self)
        other._accidents = self._accidents.copy()
        other._partitions = [copy.copy(each) for each in self._partitions]
        return other

    def key(self) -> str:
        """Differs for different states."""
        known = (self._is_up, self._handling, sorted(self._watched), self._ends)
        return repr((self._partitions, known, self._restarts_left, sorted(self._accidents.items())))

    def actions(self, *, faults: bool = True) -> Iterator[Action]:
        """What can happen next; without faults, what goes on by itself."""
        for number, partition in enumerate(self._partitions):
            if partition.under_way is not None:
                if self._handling is None:
                    yield "handle", number
                else:
                    yield "time out", number
            elif self._may_call(number, partition) and (
                self._is_up or faults or not self.rules.counts_only_what_the_process_got
            ):
                yield "call", number
        if not self._is_up or self._handling is not None:
            yield "restart", 0
        if faults and self._is_up and self._may_have_accident():
            yield "accident", 0
        if faults and self._restarts_left:
            for worker in set(self.bounds.workers):
                yield "worker", worker

    def _got(self) -> list[tuple[int, int]]:
        """The first messages of the calls under way."""
        return [
            (number, partition.under_way[0])
            for number, partition in enumerate(self._partitions)
            if partition.under_way is not None
        ]

    def _may_have_accident(self) -> bool:
        most = self.bounds.accidents
        return bool(most) and all(self._accidents.get(each, 0) < most for each in self._got())

    def _may_call(self, number: int, partition: _Partition) -> bool:
        if partition.position >= self.bounds.messages[number]:
            return False
        worker = self.bounds.workers[number]
        beside = [
            each
            for other, each in enumerate(self._partitions)
            if other != number and self.bounds.workers[other] == worker
            and each.under_way is not None
        ]  # fmt: skip
        if self.rules.calls_what_is_suspected_alone:
            if partition.suspected is not None and beside:
                return False
            if any(each.suspected is not None for each in beside):
                return False
        lower = self._partitions[:number]
        asks = (
            self.bounds.asks
            and self.rules.asks_for_lower_partitions
            and partition.suspected is not None
        )
        return not (asks and any(each.stored[1] is not None for each in lower))

    def perform(self, action: Action) -> None:
        """Let it happen.

        Raises:
            ViolationError: a message that is not fatal is condemned, or fatal ones end the process
                too often.
        """
        kind, number = action
        if kind == "call":
            self._call(number)
        elif kind == "handle":
            self._handle(number)
        elif kind == "time out":
            self._time_out(number)
        elif kind == "restart":
            if self._is_up:
                self._end_process(self._handling)
            self._is_up, self._handling, self._watched = True, None, frozenset()
        elif kind == "accident":
            for each in self._got():
                self._accidents[each] = self._accidents.get(each, 0) + 1
            self._end_process(None)
        else:
            self._restarts_left -= 1
            self._watched -= {number}
            for partition, worker in zip(self._partitions, self.bounds.workers, strict=True):
                if worker == number:
                    partition.position, partition.suspected = partition.stored
                    partition.end = partition.under_way = None

    def _call(self, number: int) -> None:
        partition = self._partitions[number]
        most = messages_max(partition.suspected, partition.position, 99)
        end = min(partition.position + most, self.bounds.messages[number])
        partition.under_way = partition.position, min(end, partition.end or end)
        if not self._is_up:
            if self.rules.counts_only_what_the_process_got:
                partition.end, partition.under_way = partition.under_way[1], None
            else:
                self._lost(number)

    def _handle(self, number: int) -> None:
        partition = self._partitions[number]
        assert partition.under_way is not None
        if any((number, each) in self.bounds.poison for each in range(*partition.under_way)):
            self._ends += 1
            if self._ends > self.bounds.ends_max:
                raise ViolationError("messages end the process more often than they must")
            if self.bounds.hangs:
                self._handling = number
            else:
                self._end_process(None)
            return
        partition.position, partition.under_way = partition.under_way[1], None
        before = partition.suspected
        partition.suspected = cleared(before, partition.position)
        if before and partition.suspected and not self.rules.forgets_the_count_of_what_is_done:
            partition.suspected = dataclasses.replace(partition.suspected, count=before.count)
        partition.end = None
        partition.stored = partition.position, partition.suspected

    def _end_process(self, watched: int | None) -> None:
        """All calls that it got are lost; one that hangs was counted when its time was over."""
        self._is_up, self._handling = False, None
        for number, partition in enumerate(self._partitions):
            if partition.under_way is None:
                continue
            hung = self.bounds.workers[number] in self._watched
            if hung and self.rules.counts_nothing_while_a_call_hangs:
                partition.end, partition.under_way = partition.under_way[1], None
            else:
                self._lost(number)

    def _time_out(self, number: int) -> None:
        partition, worker = self._partitions[number], self.bounds.workers[number]
        assert partition.under_way is not None
        if worker in self._watched and self.rules.counts_nothing_while_a_call_hangs:
            partition.end, partition.under_way = partition.under_way[1], None
            return
        self._watched |= {worker}
        self._lost(number)

    def _lost(self, number: int) -> None:
        """A call that the process got had no answer."""
        partition = self._partitions[number]
        assert partition.under_way is not None
        start, end = partition.under_way
        partition.under_way = None
        call = Call(start, end, (), (range(start, end),))
        before = partition.suspected
        verdict = unanswered(before, call, self.bounds.calls_max)
        halved = verdict.messages < call.count
        poison = verdict.poison
        if halved and not self.rules.halves_before_it_condemns:
            halved, poison = False, True
        if call.count == 1 and not self.rules.condemns_only_what_was_alone_as_often:
            poison = poison or (before is not None and before.messages_max == 1)
        if poison:
            for each in range(start, end):
                if (number, each) not in self.bounds.poison:
                    raise ViolationError(f"message {each} of {number} is condemned")
            partition.dead += tuple(range(start, end))
            partition.position, partition.suspected, partition.end = end, None, None
        else:
            partition.suspected = verdict.suspected
            partition.end = start + verdict.messages if halved else end
        kept = partition.suspected if self.rules.keeps_the_count else None
        partition.stored = partition.position, kept

    def check_settled(self) -> None:
        """What must hold when nothing happens any more."""
        for number, partition in enumerate(self._partitions):
            fatal = tuple(sorted(each for at, each in self.bounds.poison if at == number))
            if partition.position != self.bounds.messages[number] or partition.dead != fatal:
                raise ViolationError("a message is neither delivered nor condemned")
