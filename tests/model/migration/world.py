"""One record in one moment: in each location, the migration state, and what everybody is about."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

from hqueue.metadata.managers import MetadataLocation, MigrationState, Phase
from tests.model.groups.world import ViolationError

__all__ = ["Action", "Bounds", "Rules", "World"]

Action = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of a move. Each is taken out once."""

    says_what_it_acknowledges_before_it_looks: bool = True
    """Else it looks whether the state is the same, and says afterwards that it acknowledges it."""
    acknowledges_nothing_while_a_change_is_under_way: bool = True
    writes_only_while_it_is_open: bool = True
    looks_again_after_a_change: bool = True
    counts_its_session_only_while_it_is_certain: bool = True
    waits_for_the_writers_that_are_present: bool = True
    copies_again_what_was_changed_since: bool = True
    copies_to_a_place_of_its_own: bool = True
    """Else to the same one in each store, over what is there."""
    changes_only_the_state_that_it_read: bool = True
    versions_name_their_place: bool = True


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What may happen at most."""

    writers: tuple[str, ...] = ("a",)
    changes: int = 2
    """How many changes each writer makes."""
    moves: int = 1
    deaths: int = 0
    """Runs of a move that go no further, or much later."""
    abandons: int = 0
    ends: int = 0
    """Writers' sessions that end, once they stood still for as long."""


Chain = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Record:
    """What a record is in one place: the changes that made it, and its version there."""

    chain: Chain
    version: int = 0


@dataclasses.dataclass
class _Writer:
    """A writer's process: what it knows, and what it is about."""

    known: MigrationState
    session: int
    admitted: int | None = None
    admitted_by: int | None = None
    saying: int | None = None
    """The state that it is about to acknowledge, in the second of two steps."""
    is_certain: bool = False
    step: str = ""
    entered: tuple[MigrationState, int | None] | None = None
    seen: tuple[MetadataLocation, _Record] | None = None
    made: bool = False
    left: int = 0
    number: int = 0


@dataclasses.dataclass
class _Run:
    """A run of a move: what it made of the state last, and what comes next."""

    state: MigrationState
    step: str
    read: Chain = ()


class World:
    """A record, and everything that can happen next to it.

    Args:
        bounds: what may happen at most.
        rules: those that are kept.
    """

    def __init__(self, bounds: Bounds, rules: Rules = Rules()) -> None:
        self.rules = rules
        self._left = {
            "move": bounds.moves,
            "die": bounds.deaths,
            "abandon": bounds.abandons,
            "end": bounds.ends,
        }
        self.state = MigrationState(0, Phase.STABLE, MetadataLocation("zookeeper", 0))
        self.places: dict[MetadataLocation, _Record] = {self.state.location: _Record((), 1)}
        self.said: dict[str, tuple[int, int]] = {}
        """What each writer acknowledged that is present, and by which session."""
        self.acknowledged: frozenset[str] = frozenset()
        """The changes that writers were answered are made."""
        self._sessions = len(bounds.writers)
        self.writers = {
            name: _Writer(self.state, number, left=bounds.changes)
            for number, name in enumerate(bounds.writers)
        }
        self.runs: dict[str, _Run] = {}

    def copied(self) -> World:
        """The same in the same state."""
        other = copy.copy(self)
        for name in ("_left", "places", "said"):
            setattr(other, name, getattr(self, name).copy())
        other.writers = {name: dataclasses.replace(each) for name, each in self.writers.items()}
        other.runs = {name: dataclasses.replace(each) for name, each in self.runs.items()}
        return other

    def key(self) -> str:
        """Differs for different states."""
        writers = sorted((name, repr(each)) for name, each in self.writers.items())
        runs = sorted((name, repr(each)) for name, each in self.runs.items())
        places = sorted(self.places.items())
        return repr(
            (self.state, places, sorted(self.said.items()), sorted(self.acknowledged), writers,
             runs, self._left)
        )  # fmt: skip

    def actions(self, *, faults: bool = True) -> Iterator[Action]:
        """What can happen next; without faults, what happens by itself."""
        for name, writer in self.writers.items():
            yield from self._of_writer(name, writer, faults=faults)
        for name, run in self.runs.items():
            if run.step != "drained" or self._is_drained(run.state):
                yield run.step, name
            if self._left["die"] and faults:
                yield "die", name
        if self._left["move"] and (faults or not self.runs):
            yield "move", ""
        elif not self.runs and self.state.phase is not Phase.STABLE:
            yield "move", "again"
        if self._left["abandon"] and faults and self.state.phase is not Phase.STABLE:
            yield "abandon", ""

    def perform(self, action: Action) -> None:
        """Let it happen.

        Raises:
            ViolationError: a promise is broken by it.
        """
        kind, name = action
        getattr(self, f"_{kind}")(name)
        lost = self.acknowledged - {*self.places[self.state.location].chain}
        if lost:
            raise ViolationError(f"{min(lost)} was made, and is lost")

    def check_settled(self) -> None:
        """When nothing happens any more, no move is under way, and all has been written."""
        if self.state.phase is not Phase.STABLE:
            raise ViolationError(f"it stays {self.state.phase}")
        if any(writer.left or writer.step for writer in self.writers.values()):
            raise ViolationError("a writer does not get on")

    # A writer.

    def _of_writer(self, name: str, writer: _Writer, *, faults: bool) -> Iterator[Action]:
        if writer.known != self.state:
            yield "see", name
        if writer.saying is not None:
            yield "look", name
        elif self._may_say(name, writer):
            yield "say", name
        if writer.step:
            yield writer.step, name
        elif writer.left and writer.seen is None:
            yield "peek", name
        elif writer.left and self._may_enter(writer):
            yield "enter", name
        if faults and self._left["end"] and writer.is_certain:
            yield "lapse", name

    def _may_say(self, name: str, writer: _Writer) -> bool:
        """Whether it acknowledges the state that it knows: to write, or as it did before."""
        is_said = self.said.get(name) == (writer.known.number, writer.session)
        wants = writer.left or writer.step or name in self.said
        if (is_said and self._is_admitted(writer)) or not wants:
            return False
        if is_said and not writer.known.phase.is_open:
            return False
        entered = writer.entered and writer.entered[0].number
        return not self.rules.acknowledges_nothing_while_a_change_is_under_way or entered in (
            None,
            writer.known.number,
        )

    def _is_admitted(self, writer: _Writer) -> bool:
        by = writer.admitted_by
        certain = writer.is_certain and by == writer.session
        if not self.rules.counts_its_session_only_while_it_is_certain:
            certain = by is not None
        return writer.admitted == writer.known.number and certain

    def _may_enter(self, writer: _Writer) -> bool:
        return self._is_admitted(writer) and (
            writer.known.phase.is_open or not self.rules.writes_only_while_it_is_open
        )

    def _see(self, name: str) -> None:
        writer = self.writers[name]
        writer.known = self.state

    def _say(self, name: str) -> None:
        """The first of two steps."""
        writer = self.writers[name]
        writer.saying = writer.known.number
        if self.rules.says_what_it_acknowledges_before_it_looks:
            self._register(name, writer)
        else:
            writer.known = self.state
            if self.state.number != writer.saying:
                writer.saying = None

    def _look(self, name: str) -> None:
        """The second one."""
        writer = self.writers[name]
        if self.rules.says_what_it_acknowledges_before_it_looks:
            writer.known = self.state
        else:
            self._register(name, writer)
        lives = self.said.get(name) == (writer.saying, writer.session)
        if lives and writer.known.number == writer.saying:
            writer.admitted, writer.admitted_by = writer.saying, writer.session
            writer.is_certain = True
        writer.saying = None

    def _register(self, name: str, writer: _Writer) -> None:
        assert writer.saying is not None
        writer.admitted = None
        self.said[name] = writer.saying, writer.session

    def _lapse(self, name: str) -> None:
        """It stands still until its session ends, and goes on with the next one."""
        self._left["end"] -= 1
        writer = self.writers[name]
        self._sessions += 1
        writer.session, writer.is_certain = self._sessions, False
        self.said.pop(name, None)

    def _peek(self, name: str) -> None:
        """It reads what it is going to change, where it lay a moment ago."""
        writer = self.writers[name]
        location = writer.known.location
        writer.seen = location, self.places[location]

    def _enter(self, name: str) -> None:
        writer = self.writers[name]
        writer.entered, writer.step = (writer.known, writer.admitted_by), "change"

    def _change(self, name: str) -> None:
        """Its request comes to the store, whenever that is."""
        writer = self.writers[name]
        assert writer.entered
        assert writer.seen
        location, (where, seen) = writer.entered[0].location, writer.seen
        there = self.places[location]
        same_place = where == location or not self.rules.versions_name_their_place
        writer.made = same_place and there.version == seen.version
        if writer.made:
            if there.chain != seen.chain:
                raise ViolationError(f"{name} changed what it had not read")
            change = f"{name}{writer.number}"
            writer.number += 1
            self.places[location] = _Record((*there.chain, change), there.version + 1)
        writer.step = "check"

    def _check(self, name: str) -> None:
        """It looks whether what it had acknowledged holds, and answers."""
        writer = self.writers[name]
        assert writer.entered
        state, by = writer.entered
        certain = by == writer.session or not self.rules.counts_its_session_only_while_it_is_certain
        held = writer.admitted_by == by and certain and writer.admitted == state.number
        if not held and self.rules.looks_again_after_a_change:
            writer.known = self.state
            same_location = self.state.location == state.location
            held = same_location and self.state.phase is not Phase.COMPARING
        if writer.made:
            if held or not self.rules.looks_again_after_a_change:
                self.acknowledged |= {f"{name}{writer.number - 1}"}
            elif by == writer.session:
                raise ViolationError(f"{name} was there all the time, and does not know")
            writer.left -= 1
        if writer.made or held:
            writer.seen = None  # Else it was refused where it does not lie any more: once again.
        writer.step, writer.entered, writer.made = "", None, False

    # A run of a move.

    def _is_drained(self, state: MigrationState) -> bool:
        if not self.rules.waits_for_the_writers_that_are_present:
            return True
        return all(number >= state.number for number, _ in self.said.values())

    def _move(self, name: str) -> None:
        if not name:
            self._left["move"] -= 1
        at = self.state.copy and self.state.copy.store
        to = at or ("hbase" if self.state.location.store == "zookeeper" else "zookeeper")
        self.state = self.state.begun(to)
        self.runs[f"run {self.state.number}"] = _Run(self.state, "copy")

    def _copy(self, name: str) -> None:
        """While it is changed."""
        run = self.runs[name]
        run.read, run.step = self.places[run.state.location].chain, "drain"
        self._write(run)

    def _drain(self, name: str) -> None:
        run = self.runs[name]
        if self._put(name, run.state.draining()):
            run.step = "drained"

    def _drained(self, name: str) -> None:
        run = self.runs[name]
        if self._put(name, run.state.drained()):
            run.step = "read" if self.rules.copies_again_what_was_changed_since else "switch"

    def _read(self, name: str) -> None:
        """It reads what it copies; a part of a second later it writes that, or much later."""
        run = self.runs[name]
        run.read, run.step = self.places[run.state.location].chain, "amend"

    def _amend(self, name: str) -> None:
        run = self.runs[name]
        run.step = "switch"
        self._write(run)

    def _switch(self, name: str) -> None:
        run = self.runs[name]
        after = dataclasses.replace(run.state.switched(), location=self._target(run.state))
        if self._put(name, after):
            del self.runs[name]

    def _write(self, run: _Run) -> None:
        location = self._target(run.state)
        there = self.places.get(location)
        if there is None or there.chain != run.read:
            self.places[location] = _Record(run.read, 0 if there is None else there.version + 1)

    def _target(self, state: MigrationState) -> MetadataLocation:
        assert state.copy is not None
        return (
            state.copy
            if self.rules.copies_to_a_place_of_its_own
            else MetadataLocation(state.copy.store, 0)
        )

    def _die(self, name: str) -> None:
        self._left["die"] -= 1
        del self.runs[name]

    def _abandon(self, name: str) -> None:
        self._left["abandon"] -= 1
        self.state = self.state.abandoned()

    def _put(self, name: str, state: MigrationState) -> bool:
        """Make this the state, if nobody else has changed it; else the run is over."""
        run = self.runs[name]
        if self.state != run.state and self.rules.changes_only_the_state_that_it_read:
            del self.runs[name]
            return False
        number = max(state.number, self.state.number + 1)
        self.state = run.state = dataclasses.replace(state, number=number)
        return True
