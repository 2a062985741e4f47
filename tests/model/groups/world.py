"""A group in one moment: the service, each member as it is, and what is under way."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

from hqueue.groups.assignors import Assignor, GroupView
from hqueue.groups.membership import Membership, Steps
from hqueue.groups.planning import Planning
from hqueue.metadata import PartitionKey

__all__ = ["Action", "Bounds", "Rules", "ViolationError", "World"]

Action = tuple[str, str, PartitionKey | None]
Plan = tuple[tuple[PartitionKey, str], ...]


class ViolationError(Exception):
    """A promise was broken."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules that drivers and the service keep. Each is taken out once."""

    claims_bump_the_version: bool = True
    bumps_compare_the_version: bool = True
    """What is consumed begins at the offset that was bumped, and not at one before it."""
    asks_for_its_session_before_it_bumps: bool = True
    """Between reading an offset and the bump: what is read then is no later owner's."""
    commits_compare_the_version: bool = True
    hands_out_with_a_lease_only: bool = True
    releases_only_its_own: bool = True
    """A release deletes the node of its own session, and no other."""
    releases_what_is_revoked_only: bool = True
    """A release that comes late finds what was claimed again, and leaves it."""
    forgets_with_its_session: bool = True
    claims_again_what_was_refused: bool = True
    doubts_what_got_no_answer: bool = True
    """A claim whose answer was lost is released, or claimed again."""
    member: type[Membership] = Membership
    planning: type[Planning] = Planning


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What may happen at most."""

    partitions: int = 2
    members: tuple[str, ...] = ("a", "b")
    late: tuple[str, ...] = ()
    """Members that come some time later."""
    ends: int = 1
    """Sessions that end although their member lives, or has just stood still."""
    crashes: int = 0
    leaves: int = 0
    lost_answers: int = 0
    """Claims that are made, and of which the claimer does not hear."""
    commits: int = 1
    late_plans: int = 0
    """Plans that arrive some time after they were sent."""


@dataclasses.dataclass
class _Member:
    """A member's process: what it knows, and what it has under way."""

    membership: Membership
    planning: Planning
    session: int
    seen_members: frozenset[str] = frozenset()
    seen_plan: Plan | None = None
    leased: bool = True
    """Whether it may be certain that its session lives. Until that is over, the session is."""
    alive: bool = True
    begun: dict[PartitionKey, str] = dataclasses.field(default_factory=dict)
    """Claims and releases under way, and how far each is."""
    late: set[PartitionKey] = dataclasses.field(default_factory=set)
    """Releases that its consumer makes for a session that is over."""
    offsets: dict[PartitionKey, tuple[int, int]] = dataclasses.field(default_factory=dict)
    """Of what it claims or has: the version that it commits with, and how many commits there were
    when the offset was read."""
    refused: set[PartitionKey] = dataclasses.field(default_factory=set)

    def copied(self) -> _Member:
        return dataclasses.replace(
            self,
            membership=_copied(self.membership),
            planning=copy.copy(self.planning),
            begun=self.begun.copy(),
            late=self.late.copy(),
            offsets=self.offsets.copy(),
            refused=self.refused.copy(),
        )


def _copied(membership: Membership) -> Membership:
    other = copy.copy(membership)
    other._stages = membership._stages.copy()
    other._outdated = membership._outdated.copy()
    return other


class World:
    """A group, and everything that can happen next in it.

    Args:
        bounds: what may happen at most.
        assignor: of the members.
        eager: as `Membership` takes it.
        rules: those that are kept.
    """

    def __init__(
        self, bounds: Bounds, assignor: Assignor, *, eager: bool = False, rules: Rules = Rules()
    ) -> None:
        self.rules = rules
        self.keys = tuple(PartitionKey("q", number) for number in range(bounds.partitions))
        self._assignor, self._eager = assignor, eager
        self._left = {
            "end": bounds.ends,
            "crash": bounds.crashes,
            "leave": bounds.leaves,
            "lose": bounds.lost_answers,
            "delay": bounds.late_plans,
        }
        self._commits = bounds.commits
        self._late = set(bounds.late)
        self._sessions = 0
        self.present: dict[str, int] = {}
        self.owners: dict[PartitionKey, tuple[str, int]] = {}
        self._versions = dict.fromkeys(self.keys, 0)
        self._accepted = dict.fromkeys(self.keys, 0)
        self._consumers: dict[PartitionKey, tuple[str, int]] = {}
        """Who began to consume a partition last, in which session."""
        self._commits_sent: tuple[tuple[str, int, PartitionKey, int], ...] = ()
        self._plan: Plan = ()
        self._plans_sent: tuple[tuple[str, Plan], ...] = ()
        self.members: dict[str, _Member] = {}
        for name in bounds.members:
            self._join(name)

    def copied(self) -> World:
        """The same in the same state."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, set)):
                setattr(other, name, value.copy())
        other.members = {name: member.copied() for name, member in self.members.items()}
        return other

    def key(self) -> str:
        """Differs for different states."""
        members = [
            (
                name,
                sorted(m.membership._stages.items(), key=str),
                sorted(m.membership._outdated),
                sorted(m.membership._doubtful),
                sorted(m.membership._wanted),
                sorted((m.planning._plan or {}).items()),
                m.planning._stands,
                m.planning.regrouped,
                m.session,
                sorted(m.seen_members),
                m.seen_plan,
                m.leased,
                m.alive,
                sorted(m.begun.items()),
                sorted(m.late),
                sorted(m.offsets.items()),
                sorted(m.refused),
                m.membership.leaving,
            )
            for name, m in sorted(self.members.items())
        ]
        service = (
            sorted(self.present.items()), sorted(self.owners.items()), self._versions,
            self._accepted, sorted(self._consumers.items()), self._commits_sent, self._left,
            self._commits, self._late, self._plan, self._plans_sent,
        )  # fmt: skip
        return repr((members, service))

    def actions(self, *, faults: bool = True) -> Iterator[Action]:
        """What can happen next; without faults, what members and the service do by themselves."""
        for name, member in self.members.items():
            gone = self.present.get(name) != member.session
            if gone and member.alive:
                yield "learn", name, None
            if member.alive and not gone:
                yield from self._own_actions(name, member)
            if member.alive:
                yield from (("request", name, key) for key in member.begun)
                yield from (("release", name, key) for key in member.late)
            if member.alive and member.leased and self._commits and faults:
                yield from (("commit", name, key) for key in member.membership.owned)
            if faults and not gone and member.alive:
                yield from self._faults(name, member)
            if not gone and not member.leased and (faults or not member.alive):
                yield "end", name, None
        for index, (name, _, key, _) in enumerate(self._commits_sent):
            yield f"arrive {index}", name, key
        yield from (
            (f"plan {index}", name, None) for index, (name, _) in enumerate(self._plans_sent)
        )
        for name in self._late:
            yield "join", name, None

    def _faults(self, name: str, member: _Member) -> Iterator[Action]:
        if self._left["crash"]:
            yield "crash", name, None
        if self._left["end"] and member.leased:
            yield "doubt", name, None
        if self._left["lose"]:
            asked = (key for key, stage in member.begun.items() if stage == "create")
            yield from (("lose", name, key) for key in asked if key not in self.owners)
        if self._left["delay"] and self._plans(name):
            yield "delay", name, None
        if self._left["leave"] and not member.membership.leaving:
            yield "leave", name, None

    def _own_actions(self, name: str, member: _Member) -> Iterator[Action]:
        if not member.leased:
            yield "confirm", name, None
        if member.seen_members != frozenset(self.present):
            yield "see members", name, None
        if not self._eager and member.seen_plan != self._plan:
            yield "see plan", name, None
        if member.refused and self.rules.claims_again_what_was_refused:
            yield "pause", name, None
        steps = self._next_steps(member)
        if (steps.claim - member.refused) or steps.revoke or steps.release or self._plans(name):
            yield "step", name, None
        elif member.membership.leaving and not member.membership.held:
            yield "depart", name, None

    def perform(self, action: Action) -> None:
        """Let it happen.

        Raises:
            ViolationError: a promise is broken by it.
        """
        kind, name, key = action
        if kind.startswith("arrive"):
            self._arrive(int(kind.split()[1]))
        elif kind.startswith("plan"):
            self._arrive_plan(int(kind.split()[1]))
        elif key is None:
            getattr(self, "_" + kind.replace(" ", "_"))(name)
        else:
            getattr(self, "_" + kind)(name, key)
        self._check_handing_out()

    # What happens.

    def _join(self, name: str) -> None:
        self._late.discard(name)
        self._sessions += 1
        membership = self.rules.member(eager=self._eager)
        planning = self.rules.planning(name, self._assignor, led=not self._eager)
        planning.see_partitions(dict.fromkeys(self.keys))
        self.members[name] = _Member(membership, planning, self._sessions)
        self.present[name] = self._sessions

    def _see_members(self, name: str) -> None:
        member = self.members[name]
        member.seen_members = frozenset(self.present)
        member.planning.see_members({each: {"q": 1} for each in sorted(self.present)})

    def _see_plan(self, name: str) -> None:
        member = self.members[name]
        member.seen_plan = self._plan
        member.planning.see_plan(dict(self._plan))

    def _plans(self, name: str) -> bool:
        """Whether a member has a plan to write."""
        return copy.copy(self.members[name].planning).replan() is not None

    def _delay(self, name: str) -> None:
        """A plan is sent, and does not arrive yet."""
        self._left["delay"] -= 1
        plan = self.members[name].planning.replan() or {}
        self._plans_sent += ((name, tuple(sorted(plan.items()))),)

    def _arrive_plan(self, index: int) -> None:
        """Whatever became of its sender meanwhile."""
        plan = self._plans_sent[index][1]
        self._plans_sent = self._plans_sent[:index] + self._plans_sent[index + 1 :]
        self._write_plan(plan)

    def _write_plan(self, plan: Plan) -> None:
        self._plan = plan
        for member in self.members.values():
            member.seen_plan = None  # Each write is seen, also one of what was there before.

    def _next_steps(self, member: _Member) -> Steps:
        membership = _copied(member.membership)
        membership.want(member.planning.wanted(), regrouped=member.planning.regrouped)
        return membership.steps()

    def _step(self, name: str) -> None:
        member = self.members[name]
        plan = member.planning.replan()
        if plan is not None:
            self._write_plan(tuple(sorted(plan.items())))
        wanted = member.planning.wanted()
        member.membership.want(wanted, regrouped=member.planning.regrouped)
        member.planning.regrouped = False
        doubtful = member.membership.held
        steps = member.membership.steps()
        for key in sorted(steps.claim):
            if key in member.refused:  # It is not asked for now.
                member.membership.refused(key)
                member.membership.doubt({key} & doubtful)
            else:
                member.begun[key] = "create"
        member.begun |= dict.fromkeys(sorted(steps.revoke), "release")
        for key in steps.release:
            if self.owners.get(key) == (name, member.session):
                del self.owners[key]

    def _pause(self, name: str) -> None:
        """A while goes by, after which what was refused is asked for again."""
        self.members[name].refused.clear()

    def _request(self, name: str, key: PartitionKey) -> None:
        """The next request for a partition is made and answered.

        What its session owns it can't make any more when that is over; but it can delete, and
        change records.
        """
        member = self.members[name]
        stage = member.begun.pop(key)
        lives = self.present.get(name) == member.session
        if stage == "release":
            self._release(name, key)
        elif stage == "create" and (
            not lives or self.owners.get(key, (name, member.session)) != (name, member.session)
        ):
            self._refuse(member, key)
        elif stage == "create":
            self.owners[key] = name, member.session
            self._read(member, key)
        elif stage == "read":
            self._read(member, key)
        elif stage == "ask":
            if (lives and member.leased) or not self.rules.asks_for_its_session_before_it_bumps:
                member.begun[key] = "bump"
            else:
                self._refuse(member, key)
                self._doubt_claim(member, key)
        elif self.rules.bumps_compare_the_version and member.offsets[key][0] != self._versions[key]:
            member.begun[key] = "read"
        else:
            self._bump(name, member, key)

    def _read(self, member: _Member, key: PartitionKey) -> None:
        member.offsets[key] = self._versions[key], self._accepted[key]
        member.begun[key] = "ask"

    def _refuse(self, member: _Member, key: PartitionKey) -> None:
        member.refused.add(key)
        member.membership.refused(key)

    def _bump(self, name: str, member: _Member, key: PartitionKey) -> None:
        """The version of an offset is counted up, and the partition is consumed from there."""
        read = member.offsets[key][1]
        if self.present.get(name) == member.session and read != self._accepted[key]:
            raise ViolationError(f"{name} begins {key} before an offset that was committed")
        if self.rules.claims_bump_the_version:
            self._versions[key] += 1
        member.offsets[key] = self._versions[key], read
        member.membership.claimed(key)
        self._consumers[key] = name, member.session

    def _release(self, name: str, key: PartitionKey) -> None:
        """A consumer gives up what it was to give up."""
        member = self.members[name]
        member.late.discard(key)
        revokes = member.membership.revokes(key)
        if self.rules.releases_what_is_revoked_only and not revokes:
            return
        mine = self.owners.get(key) == (name, member.session)
        if mine or not self.rules.releases_only_its_own:
            self.owners.pop(key, None)
        if revokes:
            member.offsets.pop(key, None)
            member.membership.released(key)

    def _lose(self, name: str, key: PartitionKey) -> None:
        """A claim is made, but its answer gets lost."""
        self._left["lose"] -= 1
        member = self.members[name]
        del member.begun[key]
        self.owners[key] = name, member.session
        member.membership.refused(key)
        self._doubt_claim(member, key)

    def _doubt_claim(self, member: _Member, key: PartitionKey) -> None:
        if self.rules.doubts_what_got_no_answer:
            member.membership.doubt([key])

    def _commit(self, name: str, key: PartitionKey) -> None:
        """A commit is sent; it may arrive whenever it wants, whatever became of its session."""
        self._commits -= 1
        member = self.members[name]
        self._commits_sent += ((name, member.session, key, member.offsets[key][0]),)

    def _arrive(self, index: int) -> None:
        name, session, key, version = self._commits_sent[index]
        self._commits_sent = self._commits_sent[:index] + self._commits_sent[index + 1 :]
        if self.rules.commits_compare_the_version and version != self._versions[key]:
            return
        self._accepted[key] += 1
        self._versions[key] += 1
        member = self.members.get(name)
        if member is not None and member.offsets.get(key, (None, 0))[0] == version:
            member.offsets[key] = self._versions[key], self._accepted[key]
        if self._consumers[key] != (name, session):
            raise ViolationError(f"{name} moved the offset of {key}, which is another's")

    def _confirm(self, name: str) -> None:
        self.members[name].leased = True

    def _doubt(self, name: str) -> None:
        """Its session has not been confirmed for so long that it may end."""
        self._left["end"] -= 1
        self.members[name].leased = False

    def _crash(self, name: str) -> None:
        self._left["crash"] -= 1
        member = self.members[name]
        member.alive = member.leased = False

    def _end(self, name: str) -> None:
        """The service ends a session."""
        del self.present[name]
        session = self.members[name].session
        self.owners = {key: by for key, by in self.owners.items() if by != (name, session)}

    def _learn(self, name: str) -> None:
        """A member learns that its session is over, and comes again."""
        member = self.members[name]
        member.late |= {key for key, stage in member.begun.items() if stage == "release"}
        member.begun.clear()
        member.refused.clear()
        if self.rules.forgets_with_its_session:
            member.membership.lost()
            member.offsets.clear()
        self._sessions += 1
        member.session, member.leased = self._sessions, True
        self.present[name] = member.session

    def _leave(self, name: str) -> None:
        """It closes: it gives up what it has, and departs when that is done."""
        self._left["leave"] -= 1
        self.members[name].membership.leave()

    def _depart(self, name: str) -> None:
        self._end(name)
        del self.members[name]

    # What must hold.

    def _owners_now(self) -> tuple[tuple[PartitionKey, str], ...]:
        return tuple(sorted((key, name) for key, (name, _) in self.owners.items()))

    def _check_handing_out(self) -> None:
        """Nobody hands out messages of a partition that another does."""
        leased = self.rules.hands_out_with_a_lease_only
        for key in self.keys:
            able = [
                name
                for name, member in self.members.items()
                if member.alive and (member.leased or not leased) and key in member.membership.owned
            ]
            if len(able) > 1:
                raise ViolationError(f"{' and '.join(able)} hand out messages of {key}")

    def check_settled(self) -> None:
        """When nothing happens any more, each partition is with the one who is to have it."""
        alive = {name for name, member in self.members.items() if member.alive}
        view = GroupView(
            {name: {"q": 1} for name in sorted(alive)},
            dict.fromkeys(self.keys),
            dict(self._owners_now()),
        )
        if self._assignor(view) != view.owners:
            raise ViolationError(f"it settles with {dict(view.owners)}")
        for key, name in view.owners.items():
            if key not in self.members[name].membership.owned:
                raise ViolationError(f"{name} has {key}, and does not know it")
            if self.members[name].offsets[key][0] != self._versions[key]:
                raise ViolationError(f"{name} has {key}, and can't commit")
