"""One run: participants over the model store, stopped at each request and each wait.

At every step `World.actions` lists what could happen next, and `World.perform` lets it happen.
A run is decided by the choices alone, so that it can be played again.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from hqueue.errors import HQueueError, Outcome, QueueDisabledError, StoreUnavailableError
from hqueue.log import PartitionCursor, PartitionWriter
from hqueue.log.ports import Row

from .checker import Ledger, ViolationError
from .model_store import Call, ModelStore
from .scenario import Scenario

__all__ = ["START_MS", "Action", "Participant", "World"]

Action = tuple[str, Any]
START_MS = 10_000_000
STEPS_MAX = 2_000


class Participant:
    """A writer, a reader or another, in a greenlet of its own."""

    def __init__(self, name: str, run: Callable[..., None]) -> None:
        self.name = name
        self.greenlet = greenlet(run)
        self.pending: Call | None = None
        self.answer: Any = None
        self.slept_at = -1
        self.digest = 0
        self.crashed = False


class World:
    """A run of a scenario.

    Args:
        scenario: who, and within which bounds.
        writer: the class under test.
        reader: the class under test.
        store: what they run over.
    """

    def __init__(
        self,
        scenario: Scenario,
        writer: type[PartitionWriter] = PartitionWriter,
        reader: type[PartitionCursor] = PartitionCursor,
        store: type[ModelStore] = ModelStore,
    ) -> None:
        self.scenario = scenario
        self.writer_class, self.reader_class = writer, reader
        self.now_ms = START_MS
        self.store = store(scenario.ttl_ms)
        self.ledger = Ledger(orphans_allowed=scenario.orphans_allowed)
        self.readers: dict[str, PartitionCursor] = {}
        self.starts: dict[str, int] = {}
        self.trace: list[Action] = []
        self._hub = getcurrent()
        self._faults, self._crashes = scenario.faults, scenario.crashes
        self._jumps = scenario.jumps
        self._switches = scenario.switches
        self._acting: Participant | None = None
        self._flight: list[tuple[str, Call]] = []
        self._direct = True
        self._closed = False
        scenario.before(self)
        self._direct = False
        self._deposed = copy.deepcopy(self.store.rows)
        self._deposed_changes = self.store.changes
        self.participants = {
            name: Participant(name, self._runner(name, run)) for name, run in scenario.cast.items()
        }
        for participant in self.participants.values():
            self._resume(participant, None)

    def _runner(self, name: str, run: Callable[[World, str], None]) -> Callable[..., None]:
        return lambda _=None: run(self, name)

    # What participants see.

    def ask(self, name: str, *arguments: object) -> Any:
        """Make a request: the explorer decides what becomes of it."""
        call = Call(name, arguments, self.now_ms)
        if self._closed:
            raise GreenletExit
        if not self._direct:
            return self._hub.switch(call)
        if name == "sleep":
            self.now_ms += int(arguments[0])  # type: ignore[call-overload]
            return None
        while True:
            done, answer = self.execute("settling", call)
            if done:
                return answer
            call = answer

    def execute(self, author: str, call: Call) -> tuple[bool, Any]:
        """Let the store do it: (True, the answer), or (False, what is left to do)."""
        store, arguments = self.store, call.arguments
        store.require_enabled()
        match call.name, arguments:
            case "put_if_absent", (int() as slot, bytes() as header, dict() as bodies):
                absent = store.put_if_absent(slot, header, bodies, self.now_ms)
                if absent:
                    self.ledger.written(author, slot, header)
                return True, absent
            case "delete_headers", (tuple() as slots, int() as until_ms):
                if self.scenario.deletes_backwards:
                    slots = slots[::-1]
                if store.delete_header(slots[0], until_ms):
                    self.ledger.header_deleted(slots[0])
                left = slots[:0:-1] if self.scenario.deletes_backwards else slots[1:]
                rest = dataclasses.replace(call, arguments=(left, until_ms))
                return (True, None) if len(slots) == 1 else (False, rest)
            case "delete_row", (int() as slot,):
                if store.header(slot) is not None:
                    self.ledger.row_deleted(slot)
                store.delete_row(slot)
                return True, None
            case "truncate", ():
                store.truncate()
                self.ledger.truncated()
                return True, None
            case "read", (read,):
                return True, read()  # type: ignore[operator]
        return True, getattr(store, call.name)(*arguments)

    # The explorer's side.

    def actions(self) -> list[Action]:
        """Everything that could happen next."""
        actions: list[Action] = []
        idle: list[Action] = []
        for participant in self._free():
            call = participant.pending
            if call is None:
                continue
            if call.name == "sleep" and participant.slept_at == self.store.changes:
                idle.append(("deliver", participant.name))
                continue
            bounded = participant.name != self.scenario.stands_still
            if bounded and call.is_write and self.now_ms - call.sent_ms > self.scenario.life_ms:
                actions.append(("lost", participant.name))
                continue
            actions.append(("deliver", participant.name))
            if self._faults:
                actions += [(kind, participant.name) for kind in self._faults_of(call)]
            if self._crashes and participant.name.startswith("w"):
                actions.append(("crash", participant.name))
        if not actions:
            actions = idle
        actions += [("land", index) for index in range(len(self._flight))]
        if not any(p.pending for p in self.participants.values()):
            return [*actions, ("end", None)] if actions else []
        return actions + [("jump", ms) for ms in self._jumps]

    def _free(self) -> list[Participant]:
        """Those who may act next."""
        if not self._switches and self._acting and not self._waits(self._acting):
            return [self._acting]
        return list(self.participants.values())

    def _waits(self, participant: Participant) -> bool:
        """Whether it has ended, or waits for others."""
        call = participant.pending
        return call is None or (
            call.name == "pause"
            or (call.name == "sleep" and participant.slept_at == self.store.changes)
        )

    def _faults_of(self, call: Call) -> list[str]:
        if call.name in ("sleep", "pause", "answer", "disable", "truncate"):
            kinds: tuple[str, ...] = ()
        elif call.name == "put_if_absent":
            kinds = ("unknown", "refused", "slow")
            slot: Any = call.arguments[0]
            if self.store.header(slot) is None and not self.store.disabled:
                kinds += ("repeated", "disabled", "echo")
        elif call.is_write:
            kinds = ("unknown", "slow")
        else:
            kinds = ("unavailable", "slow")
            if self.store.changes != self._deposed_changes:
                kinds += ("stale",)
        return [kind for kind in kinds if kind in self.scenario.fault_kinds]

    def perform(self, action: Action) -> None:
        """Let one thing happen."""
        self.trace.append(action)
        if len(self.trace) > STEPS_MAX:
            raise ViolationError("it does not end")
        kind, what = action
        if kind == "land":
            self._land(what)
        elif kind == "jump":
            self._jumps = tuple(ms for ms in self._jumps if ms != what)
            self._pass(what)
        elif kind == "end":
            self._flight.clear()
        else:
            self._step(kind, self.participants[what])

    def _step(self, kind: str, participant: Participant) -> None:
        call = participant.pending
        assert call is not None
        if self._acting not in (None, participant) and not self._waits(self._acting):
            self._switches -= 1
        self._acting = participant
        if kind not in ("deliver", "lost", "crash"):
            self._faults -= 1
        met_disabled = self.store.disabled and kind in ("deliver", "slow")
        if call.name == "put_if_absent" and kind != "refused" and not met_disabled:
            self.ledger.sent(participant.name, call.arguments[1])  # type: ignore[arg-type]
        if kind == "crash":
            self._crashes -= 1
            if call.is_write:
                self._flight.append((participant.name, call))
            participant.crashed, participant.pending = True, None
            participant.greenlet.throw()
        elif kind == "deliver":
            self._deliver(participant, call)
        elif kind == "slow":
            self._deliver(participant, call, slow=True)
        elif kind == "stale":
            rows, self.store.rows = self.store.rows, self._deposed
            _, answer = self.execute(participant.name, call)
            self.store.rows = rows
            self._hand(participant, answer)
        else:
            self._fail(kind, participant, call)

    def _fail(self, kind: str, participant: Participant, call: Call) -> None:
        """Let a request go wrong."""
        if kind in ("unknown", "lost"):
            if kind == "unknown":
                self._flight.append((participant.name, call))
            self._raise(participant, StoreUnavailableError("no answer", outcome=Outcome.UNKNOWN))
        elif kind in ("refused", "unavailable"):
            outcome = Outcome.UNKNOWN if kind == "unavailable" else Outcome.NOT_APPLIED
            self._raise(participant, StoreUnavailableError("no connection", outcome=outcome))
        elif kind == "repeated":
            self.execute(participant.name, call)
            self._resume(participant, False)
        elif kind == "disabled":
            self.execute(participant.name, call)
            self._raise(participant, QueueDisabledError("disabled", outcome=Outcome.UNKNOWN))
        else:
            assert kind == "echo"
            self._flight.append((participant.name, call))
            self._deliver(participant, call)

    def _deliver(self, participant: Participant, call: Call, *, slow: bool = False) -> None:
        if call.name == "answer":
            answer, participant.answer = participant.answer, None
            self._hand(participant, answer)
            return
        if call.name in ("sleep", "pause"):
            pause_ms: Any = call.arguments[0]
            self._pass(self.scenario.retry_ms if call.name == "sleep" else pause_ms)
            self._resume(participant, None)
            return
        try:
            if call.name == "disable":
                self.store.disabled = True
                done, answer = True, None
            elif call.name == "truncate":
                self.store.disabled = False
                done, answer = self.execute(participant.name, call)
            else:
                done, answer = self.execute(participant.name, call)
        except HQueueError as exc:
            done, answer = True, exc
        if not done:
            participant.pending = answer
        elif slow:
            participant.answer = answer
            participant.pending = Call("answer", (), self.now_ms)
        else:
            self._hand(participant, answer)

    def _hand(self, participant: Participant, answer: Any) -> None:
        if isinstance(answer, HQueueError):
            self._raise(participant, answer)
        else:
            self._resume(participant, answer)

    def _land(self, index: int) -> None:
        author, call = self._flight.pop(index)
        try:
            done, rest = self.execute(author, call)
        except HQueueError:
            return
        if not done:
            self._flight.append((author, rest))

    def _pass(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self._flight = [
            (author, call)
            for author, call in self._flight
            if self.now_ms - call.sent_ms <= self.scenario.life_ms
        ]

    def _resume(self, participant: Participant, answer: Any) -> None:
        participant.digest = hash((participant.digest, _key(answer), self.now_ms))
        participant.slept_at = self.store.changes if participant.name.startswith("r") else -1
        participant.pending = participant.greenlet.switch(answer)

    def _raise(self, participant: Participant, error: HQueueError) -> None:
        participant.digest = hash(
            (participant.digest, type(error).__name__, error.outcome, self.now_ms)
        )
        participant.slept_at = self.store.changes if participant.name.startswith("r") else -1
        participant.pending = participant.greenlet.throw(error)

    def key(self) -> int:
        """The state: two runs with the same key go on alike."""
        return hash(
            (
                self.store.key(),
                self.ledger.key(),
                self.now_ms,
                self._faults,
                self._crashes,
                self._jumps,
                self.scenario.switches < 1_000 and (self._switches, self._acting.name)
                if self._acting
                else None,
                tuple(sorted((a, c.name, _key(c.arguments), c.sent_ms) for a, c in self._flight)),
                tuple(
                    (
                        p.digest,
                        p.crashed,
                        p.pending and (p.pending.name, p.pending.sent_ms),
                        _left(p.pending),
                        _key(p.answer),
                        p.slept_at == self.store.changes,
                    )
                    for p in self.participants.values()
                ),
            )
        )

    def settle(self) -> None:
        """After the last step: from now on every request is answered at once."""
        self._direct = True

    def close(self) -> None:
        """End what has not ended by itself."""
        self._closed = True
        for participant in self.participants.values():
            if not participant.greenlet.dead:
                participant.greenlet.throw()

    def readable(self) -> Sequence[int]:
        """The slots whose bodies have not expired.

        Beyond the bounds a header can be collected before them: its writer got `UNKNOWN`.
        """
        slots = self.store.slots() if self.scenario.orphans_allowed else list(self.store.rows)
        return [slot for slot in slots if not self.store.is_expired(slot, self.now_ms)]


def _left(call: Call | None) -> object:
    return len(call.arguments[0]) if call and call.name == "delete_headers" else 0  # type: ignore[arg-type]


def _key(value: Any) -> object:
    if isinstance(value, Row):
        return value.slot, value.header, tuple(value.cells)
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    if isinstance(value, HQueueError):
        return type(value).__name__, value.outcome
    if isinstance(value, Mapping):
        return tuple(sorted(value))
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return tuple(value)
    return value if isinstance(value, (str, bytes, int, bool, type(None))) else id(value)
