"""One partition in one moment: its messages, the group's offset, the target and the processors."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence

from hqueue.exactly_once_steps import Cut, Progress, cut, each_of
from hqueue.message import Message, ReceivedMessage
from hqueue.message_id import MessageID
from hqueue.runtime.steps import carry_out
from tests.model.groups.world import ViolationError

__all__ = ["Action", "Bounds", "Rules", "World"]

Action = tuple[str, str, int]
UNBOUNDED = 1_000


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules that processors keep. Each is taken out once."""

    names_a_batch_by_the_offset: bool = True
    puts_before_it_commits: bool = True
    takes_the_cut_that_was_put: bool = True
    begins_again_where_the_group_is: bool = True
    holds_what_has_no_results: bool = True
    refuses_what_was_put_before_a_reset: bool = True


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What may happen at most."""

    results: tuple[int, ...] = (1, 1, 1)
    """How many each message has."""
    processors: tuple[str, ...] = ("a", "b")
    cut_max: int = 3
    crashes: int = 0
    take_overs: int = 0
    """How often a processor is taken for dead that lives."""
    resets: int = 0
    """How often all processors are ended at any point, and the group's offset is set back."""


@dataclasses.dataclass
class _Processor:
    """A processor's process: what it knows, and what it does next."""

    does_next: str = "claim"
    claim: int = 0
    progress: Progress = dataclasses.field(
        default_factory=lambda: Progress(MessageID(0), MessageID(0))
    )
    cursor: int = 0
    """The message that it is handed out next."""
    taken: Cut | None = None
    refused: int = 0
    """How many messages the batch has that lies under the key of what it took."""
    has_committed: bool = False
    """Since its claim."""

    def copied(self) -> _Processor:
        return dataclasses.replace(self, progress=dataclasses.replace(self.progress))


class World:
    """A partition of the source, and everything that can happen next around it.

    Args:
        bounds: what may happen at most.
        rules: those that are kept.
    """

    def __init__(self, bounds: Bounds, rules: Rules = Rules()) -> None:
        self.rules, self.bounds = rules, bounds
        self._messages = [
            ReceivedMessage("t", b"%d of %d" % (count, number), MessageID.from_int(number), 0)
            for number, count in enumerate(bounds.results)
        ]
        self._expected = [result.value for each in self._messages for result in _process(each)]
        self._left = {
            "crash": bounds.crashes,
            "take over": bounds.take_overs,
            "reset": bounds.resets,
        }
        self._since_reset = 0
        """How many batches the target had when the group was reset last."""
        self._offset, self._claims = 0, 0
        self._target: list[tuple[str, list[bytes]]] = []
        """The batches, each with its key."""
        self.processors = {name: _Processor() for name in bounds.processors}

    def copied(self) -> World:
        """The same in the same state."""
        other = copy.copy(self)
        other._left, other._target = self._left.copy(), self._target.copy()
        other.processors = {name: each.copied() for name, each in self.processors.items()}
        return other

    def key(self) -> str:
        """Differs for different states."""
        group = self._offset, self._claims, self._target, self._left, self._since_reset
        return repr((group, sorted(self.processors.items())))

    def actions(self, *, faults: bool = True) -> Iterator[Action]:
        """What can happen next; without faults, what processors do by themselves."""
        owned = any(self._owns(each) for each in self.processors.values())
        if faults and self._left["reset"]:
            yield from (("reset", "", place) for place in range(self._offset))
        for name, each in self.processors.items():
            if each.does_next == "claim":
                if not owned or (faults and self._left["take over"]):
                    yield "claim", name, 0
                continue
            if each.does_next == "take":
                there = min(self.bounds.cut_max, len(self._messages) - each.cursor)
                yield from (("take", name, count) for count in range(1, there + 1))
            else:
                yield each.does_next, name, 0
            if faults and self._left["crash"]:
                yield "crash", name, 0

    def perform(self, action: Action) -> None:
        """Let it happen.

        Raises:
            ViolationError: a promise is broken by it.
        """
        kind, name, count = action
        if kind == "reset":
            self._left["reset"] -= 1
            self._offset, self._since_reset = count, len(self._target)
            self.processors = {each: _Processor() for each in self.processors}
            return
        getattr(self, f"_{kind}")(self.processors[name], *[count] * (kind == "take"))
        put, lately = self._put_so_far(), self._put_since_reset()
        if put != self._expected[: len(put)] or lately != [
            r for r in self._expected if r in lately
        ]:
            raise ViolationError(f"results are not there once and in order: {self._target}")
        done = [r.value for each in self._messages[: self._offset] for r in _process(each)]
        if len(done) > len(put):
            raise ViolationError(f"the group has passed results that are not put: {done}")

    def check_settled(self) -> None:
        """What must hold when nothing happens any more; else a `ViolationError`."""
        if self._put_so_far() != self._expected:
            raise ViolationError(f"results are missing: {self._put_so_far()}")

    def _put_so_far(self) -> list[bytes]:
        """Each result for the first time: some are put again after a reset."""
        return [*dict.fromkeys(value for _, values in self._target for value in values)]

    def _put_since_reset(self) -> list[bytes]:
        return [value for _, values in self._target[self._since_reset :] for value in values]

    def _owns(self, processor: _Processor) -> bool:
        return processor.does_next != "claim" and processor.claim == self._claims

    # What `hqueue.exactly_once` does.

    def _claim(self, processor: _Processor) -> None:
        if any(self._owns(each) for each in self.processors.values()):
            self._left["take over"] -= 1
        self._claims += 1
        held = self.rules.holds_what_has_no_results
        places = MessageID.from_int(self._offset), MessageID.from_int(len(self._target))
        processor.claim, processor.progress = self._claims, Progress(*places, taken_over=held)
        processor.has_committed = False
        processor.cursor, processor.taken = self._offset, None
        processor.does_next = "take"

    def _take(self, processor: _Processor, count: int) -> None:
        there = self._messages[processor.cursor : processor.cursor + count]
        taken = _cut(there, UNBOUNDED)
        processor.cursor = int(taken.end)
        if not processor.progress.hold(taken):
            processor.taken = taken
            processor.does_next = "put" if self.rules.puts_before_it_commits else "commit"

    def _put(self, processor: _Processor) -> None:
        """The target's promise: one batch a key; and what it says of another one under that."""
        assert processor.taken is not None
        results = [each.value for each in processor.taken.results]
        by = processor.progress.begin if self.rules.names_a_batch_by_the_offset else processor.claim
        key = f"{by}"
        keys = [other for other, _ in self._target]
        place = keys.index(key) if key in keys else len(keys)
        found = self._target[place][1] if key in keys else results
        processor.does_next = "commit" if self.rules.puts_before_it_commits else "take"
        if results and key not in keys:
            self._target.append((key, results))
        elif results and found != results:
            processor.refused = len(found)
            if self.rules.takes_the_cut_that_was_put:
                processor.does_next = "retake"
        elif results and self.rules.refuses_what_was_put_before_a_reset:
            self._refuse_reset(processor, MessageID.from_int(place))

    def _refuse_reset(self, processor: _Processor, put_at: MessageID) -> None:
        if processor.progress.was_reset(put_at):
            if self._left["reset"] == self.bounds.resets:
                raise ViolationError("a processor is refused though nothing was reset")
            processor.does_next, processor.taken = "claim", None

    def _retake(self, processor: _Processor) -> None:
        there = self._messages[int(processor.progress.begin) :]
        processor.taken = _cut(there, processor.refused)
        if len(processor.taken.results) != processor.refused:
            raise ViolationError("what was put can't be made again")
        processor.does_next = "put"

    def _commit(self, processor: _Processor) -> None:
        assert processor.taken is not None
        processor.does_next = "take" if self.rules.puts_before_it_commits else "put"
        if processor.claim == self._claims:
            passed = self._messages[self._offset : int(processor.taken.end)]
            results = {result.value for each in passed for result in _process(each)}
            if processor.has_committed and results.difference(self._put_since_reset()):
                raise ViolationError(f"results are left out silently after a reset: {results}")
            self._offset, processor.has_committed = int(processor.taken.end), True
        elif self.rules.begins_again_where_the_group_is:
            processor.does_next = "claim"
            return
        processor.cursor = int(processor.taken.end)
        processor.progress.committed(processor.taken.end)

    def _crash(self, processor: _Processor) -> None:
        self._left["crash"] -= 1
        processor.does_next, processor.taken = "claim", None


def _cut(messages: Sequence[ReceivedMessage], results_max: int) -> Cut:
    return carry_out(cut(each_of(messages), _process, results_max, UNBOUNDED), _asks_nothing)


def _asks_nothing(step: object) -> object:
    raise AssertionError(step)


def _process(message: ReceivedMessage) -> list[Message]:
    count = int(message.value.split()[0])
    return [Message("r", b"%s: %d" % (message.value, number)) for number in range(count)]
