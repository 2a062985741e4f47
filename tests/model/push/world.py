"""One partition in one moment: the service, each member as it is, and a worker that calls them."""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Iterator

from hqueue.push.handover import Handover
from tests.model.groups.world import ViolationError

__all__ = ["Action", "Bounds", "Rules", "World"]

Action = tuple[str, str]
PARTITION = 0


class Certainty(enum.IntEnum):
    """How long a member's session is certain to live."""

    NONE = 0
    SHORT = 1
    """Less than half its time-out."""
    LONG = 2


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules that members keep. Each is taken out once."""

    withdraws_before_it_releases: bool = True
    awaits_calls_before_it_releases: bool = True
    refuses_what_is_not_its_own: bool = True
    is_certain_before_it_handles: bool = True
    is_certain_for_as_long_as_a_call_takes: bool = True
    counts_a_call_before_it_looks: bool = True
    forgets_with_its_session: bool = True
    claims_before_it_appears: bool = True
    withdraws_from_what_it_lost: bool = True


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What may happen at most."""

    members: tuple[str, ...] = ("a", "b")
    sends: int = 2
    moves: int = 0
    """How often the partition is assigned to another although nobody left."""
    ends: int = 0
    """Sessions that end although their member lives."""
    crashes: int = 0


@dataclasses.dataclass
class _Member:
    """A member's process: what it knows, and what it has under way."""

    session: int
    handover: Handover
    certainty: Certainty = Certainty.LONG
    alive: bool = True
    assigned_to: str = ""
    """The partition's right owner, as it sees it."""
    claim: str = ""
    """What it knows of its claim: nothing, ``owned`` or ``revoking``."""
    changes: frozenset[str] = frozenset()
    """What its driver has not heard of yet: ``assigned``, ``revoked``, ``lost``."""
    request: str = ""
    """What its driver has asked the service for."""
    inbox: int = 0
    """Calls that lie in its connections."""
    call_from: Certainty | None = None
    """A call that it has let in, or handles: for how long it was certain, at least, when that
    began."""
    handling: bool = False

    def copied(self) -> _Member:
        handover = copy.copy(self.handover)
        handover._phases = self.handover._phases.copy()
        handover._stray = self.handover._stray.copy()
        return dataclasses.replace(self, handover=handover)


class World:
    """A partition, and everything that can happen next around it.

    It is assumed that a call takes less than half of the session's time-out, or that its member's
    session outlives it.

    Args:
        bounds: what may happen at most.
        rules: those that are kept.
    """

    def __init__(self, bounds: Bounds, rules: Rules = Rules()) -> None:
        self.rules = rules
        self._left = {
            "send": bounds.sends,
            "move": bounds.moves,
            "doubt": 2 * bounds.ends,
            "end": bounds.ends,
            "crash": bounds.crashes,
        }
        self._sessions = len(bounds.members)
        self._target = bounds.members[0]
        self.members = {
            name: _Member(number, Handover()) for number, name in enumerate(bounds.members)
        }
        self._living = {number for number, _ in enumerate(bounds.members)}
        """The sessions that there are, to the service."""
        self._owner: tuple[str, int] | None = None
        self._presence: tuple[str, int] | None = None
        self._seen: str | None = None
        """Who is present, as the worker sees it."""
        self._calling: str | None = None
        """Who owes the worker an answer."""

    def copied(self) -> World:
        """The same in the same state."""
        other = copy.copy(self)
        other._left, other._living = self._left.copy(), self._living.copy()
        other.members = {name: member.copied() for name, member in self.members.items()}
        return other

    def key(self) -> str:
        """Differs for different states."""
        members = [
            (
                dataclasses.astuple(dataclasses.replace(member, handover=None)),  # type: ignore[arg-type]
                member.handover._phases,
                member.handover._stray,
            )
            for member in self.members.values()
        ]
        service = (
            self._left, sorted(self._living), self._sessions, self._target, self._owner,
            self._presence, self._seen, self._calling,
        )  # fmt: skip
        return repr((members, service))

    def actions(self, *, faults: bool = True) -> Iterator[Action]:
        """What can happen next; without faults, what members and the service do by themselves."""
        for name, member in self.members.items():
            gone = member.session not in self._living
            if member.alive:
                yield from self._own_actions(name, member, gone)
            may_end = not member.alive or (faults and self._left["end"])
            if may_end and not gone and member.certainty is Certainty.NONE:
                yield "end", name
            if faults and member.alive and not gone:
                yield from self._faults(name, member)
        present = [member.session in self._living for member in self.members.values()]
        if self.members[self._target].session not in self._living and any(present):
            yield "move", self._target
        if self._seen != (self._presence and self._presence[0]):
            yield "look at presence", ""
        if faults and self._calling and self.members[self._calling].alive:
            yield "give up", ""
        if faults and self._left["send"] and self._seen and not self._calling:
            yield "send", self._seen

    def _own_actions(self, name: str, member: _Member, gone: bool) -> Iterator[Action]:
        if gone:
            yield "learn", name
        elif member.certainty is not Certainty.LONG:
            yield "confirm", name
        if member.assigned_to != self._target and not gone:
            yield "hear", name
        mine = member.assigned_to == name
        free = not self._owner and not gone and member.request != "release"
        if mine and not member.claim and free:
            yield "claim", name
        if not mine and member.claim == "owned":
            yield "revoke", name
        if member.request:
            yield "ask", name
        elif member.changes or self._next_request(member):
            yield "turn", name
        if member.inbox and member.call_from is None:
            yield "admit", name
        if member.call_from is not None and not member.handling:
            yield "handle", name
        if member.handling:
            yield "finish", name

    def _faults(self, name: str, member: _Member) -> Iterator[Action]:
        if self._left["crash"]:
            yield "crash", name
        if self._left["move"] and name == self._target:
            yield "move", name
        if self._left["doubt"] and member.certainty is not Certainty.NONE:
            # A call ends before the session is uncertain that was certain for as long.
            left = member.certainty - 1
            if left > Certainty.NONE or member.call_from is not Certainty.LONG:
                yield "doubt", name

    def perform(self, action: Action) -> None:
        """Let it happen.

        Raises:
            ViolationError: a promise is broken by it.
        """
        kind, name = action
        do = getattr(self, "_" + kind.replace(" ", "_"))
        do(name, self.members[name]) if name else do()
        at_once = [name for name, member in self.members.items() if member.handling]
        if len(at_once) > 1:
            raise ViolationError(f"{' and '.join(at_once)} handle calls of the same partition")

    # The group: what `GroupMember` does.

    def _hear(self, name: str, member: _Member) -> None:
        member.assigned_to = self._target

    def _claim(self, name: str, member: _Member) -> None:
        self._owner = name, member.session
        member.claim = "owned"
        member.changes |= {"assigned"}

    def _revoke(self, name: str, member: _Member) -> None:
        member.claim = "revoking"
        member.changes |= {"revoked"}

    def _learn(self, name: str, member: _Member) -> None:
        """It hears that its session is over, and has another."""
        self._sessions += 1
        member.session, member.certainty = self._sessions, Certainty.NONE
        self._living.add(member.session)
        if member.claim and self.rules.forgets_with_its_session:
            untold = "assigned" in member.changes
            member.changes -= {"assigned", "revoked"}
            member.claim = ""
            if not untold:
                member.changes |= {"lost"}

    def _confirm(self, name: str, member: _Member) -> None:
        member.certainty = Certainty.LONG
        if member.call_from is not None:
            member.call_from = Certainty.LONG

    def _move(self, name: str, member: _Member) -> None:
        """The partition is assigned to the next member that seems to be there."""
        self._left["move"] -= member.session in self._living
        there = [name for name, each in self.members.items() if each.session in self._living]
        self._target = next((other for other in there if other > name), there[0])

    # The driver: what `SubscriberMember` does.

    def _turn(self, name: str, member: _Member) -> None:
        """It takes in what changed, and begins with the first thing that must be done."""
        if "lost" in member.changes:
            member.handover.lost([PARTITION])
            if not self.rules.withdraws_from_what_it_lost:
                member.handover.withdrawn([PARTITION])
        if "assigned" in member.changes:
            member.handover.claimed([PARTITION])
        if "revoked" in member.changes:
            member.handover.revoked([PARTITION])
            if not self.rules.withdraws_before_it_releases:
                member.handover.withdrawn([PARTITION])
        member.changes = frozenset()
        member.request = self._next_request(member)

    def _next_request(self, member: _Member) -> str:
        handover = member.handover
        counted = self.rules.counts_a_call_before_it_looks and member.call_from is not None
        busy = {PARTITION} if counted or member.handling else set()
        if not self.rules.awaits_calls_before_it_releases:
            busy = set()
        if handover.to_withdraw():
            return "withdraw"
        if handover.to_release(busy):
            return "release"
        wants = not self.rules.claims_before_it_appears and not handover.present
        return "appear" if handover.to_appear() or wants else ""

    def _ask(self, name: str, member: _Member) -> None:
        """The service does what it was asked for, unless the session is over; the answer comes.

        It does it by the session that the member has now.
        """
        request, member.request = member.request, ""
        if member.session not in self._living:
            return
        own = name, member.session
        if request == "withdraw":
            if self._presence == own:
                self._presence = None
            member.handover.withdrawn([PARTITION])
        elif request == "release":
            if member.claim == "revoking":
                self._owner = None if self._owner == own else self._owner
                member.claim = ""
            member.handover.released([PARTITION])
        elif self._presence is None or self._presence[0] == name:
            self._presence = own
            member.handover.appeared([PARTITION])

    # Calls.

    def _look_at_presence(self) -> None:
        self._seen = self._presence and self._presence[0]
        if self._seen and self._seen != self._calling:
            self._calling = None

    def _give_up(self) -> None:
        """The worker waits for an answer no longer."""
        self._calling = None

    def _send(self, name: str, member: _Member) -> None:
        self._left["send"] -= 1
        self._calling = name
        if member.alive:
            member.inbox += 1

    def _admit(self, name: str, member: _Member) -> None:
        member.inbox -= 1
        needed = Certainty.LONG
        if not self.rules.is_certain_for_as_long_as_a_call_takes:
            needed = Certainty.SHORT
        certain = member.certainty >= needed or not self.rules.is_certain_before_it_handles
        own = member.claim == "owned" or not self.rules.refuses_what_is_not_its_own
        if certain and own:
            member.call_from = member.certainty
        else:
            self._answer(name)

    def _handle(self, name: str, member: _Member) -> None:
        member.handling = True

    def _finish(self, name: str, member: _Member) -> None:
        member.handling, member.call_from = False, None
        self._answer(name)

    def _answer(self, name: str) -> None:
        if self._calling == name:
            self._calling = None

    # What goes wrong.

    def _doubt(self, name: str, member: _Member) -> None:
        """Time goes by in which its session is not confirmed."""
        self._left["doubt"] -= 1
        member.certainty = Certainty(member.certainty - 1)

    def _crash(self, name: str, member: _Member) -> None:
        self._left["crash"] -= 1
        member.alive = member.handling = False
        member.certainty, member.call_from, member.inbox = Certainty.NONE, None, 0
        self._answer(name)

    def _end(self, name: str, member: _Member) -> None:
        """The service ends a session."""
        self._left["end"] -= member.alive
        own = name, member.session
        self._living.discard(member.session)
        self._owner = None if self._owner == own else self._owner
        self._presence = None if self._presence == own else self._presence

    def check_settled(self) -> None:
        """When nothing happens any more, the partition is with its right owner, which is
        called for it.

        Raises:
            ViolationError: it is not.
        """
        if not any(member.alive for member in self.members.values()):
            return
        name = self._target
        member = self.members[name]
        own = name, member.session
        if not self._owner == self._presence == own or self._seen != name:
            raise ViolationError(
                f"{name} should have it: {self._owner} has it, {self._presence} is present"
            )
        if member.claim != "owned" or member.handover.present != {PARTITION}:
            raise ViolationError(f"{name} has it, and does not know it")
