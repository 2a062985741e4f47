"""A group in one moment: the service, each member as it is, and what is under way."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

from hqueue.groups.assignors import Assignor, GroupView
from hqueue.metadata import PartitionKey

from .commits import Commit, Looks
from .member import Member, Plan
from .offsets import Offsets
from .rules import ALL_RULES, Bounds, Rules, ViolationError

__all__ = ["Action", "ViolationError", "World"]

Action = tuple[str, str, PartitionKey | None]


class World:
    """A group, and everything that can happen next in it.

    Args:
        bounds: what may happen at most.
        assignor: of the members.
        eager: as `Claiming` takes it.
        rules: those that are kept.
    """

    def __init__(
        self, bounds: Bounds, assignor: Assignor, *, eager: bool = False, rules: Rules = ALL_RULES
    ) -> None:
        self.rules = rules
        self.keys = tuple(PartitionKey("q", number) for number in range(bounds.partitions))
        self._assignor, self._eager = assignor, eager
        self._left = {
            "end": bounds.ends,
            "cut": bounds.cuts,
            "crash": bounds.crashes,
            "leave": bounds.leaves,
            "lose": bounds.lost_answers,
            "miss": bounds.missed_commits,
            "delay": bounds.late_plans,
        }
        self._commits = bounds.commits
        self._late = set(bounds.late)
        self._sessions = 0
        self.present: dict[str, int] = {}
        self.owners: dict[PartitionKey, tuple[str, int]] = {}
        self._offsets = Offsets(self.keys, rules)
        self._commits_sent: tuple[tuple[str, Commit], ...] = ()
        self._plan: Plan = ()
        self._plans_sent: tuple[tuple[str, Plan], ...] = ()
        self.members: dict[str, Member] = {}
        for name in bounds.members:
            self._join(name)

    def copied(self) -> World:
        """The same in the same state."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (dict, set)):
                setattr(other, name, value.copy())
        other._offsets = self._offsets.copied()
        other.members = {name: member.copied() for name, member in self.members.items()}
        return other

    def key(self) -> str:
        """Differs for different states."""
        members = [
            (name, member.key(self._offsets)) for name, member in sorted(self.members.items())
        ]
        sent = [
            (
                name,
                self._offsets.distance(commit.key, commit.version, commit.position),
                commit.claim == self._offsets.consumers[commit.key],
                name in self.members and commit == self.members[name].sent,
            )
            for name, commit in self._commits_sent
        ]
        service = (
            sorted(self.present), self._owners_now(), self._offsets.writers, sent, self._left,
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
                yield from (("request", name, key) for key in member.requests())
                yield from (("release", name, key) for key in member.late)
                yield from self._steps_of_commits(name, member)
            if member.alive and member.leased and self._commits and faults:
                owned = member.claiming.owned
                yield from (("commit", name, key) for key in member.known if key in owned)
            if faults and not gone and member.alive:
                yield from self._faults(name, member)
            if not gone and not member.leased and (faults or not member.alive):
                yield "end", name, None
        for index, (name, commit) in enumerate(self._commits_sent):
            yield f"arrive {index}", name, commit.key
        yield from (
            (f"plan {index}", name, None) for index, (name, _) in enumerate(self._plans_sent)
        )
        for name in self._late:
            yield "join", name, None

    def _faults(self, name: str, member: Member) -> Iterator[Action]:
        if self._left["crash"]:
            yield "crash", name, None
        if self._left["cut"]:
            yield "cut", name, None
        if self._left["end"] and member.leased:
            yield "doubt", name, None
        if self._left["lose"]:
            asked = (key for key, stage in member.begun.items() if stage == "create")
            yield from (("lose", name, key) for key in asked if key not in self.owners)
        if self._left["miss"] and member.sent is not None:
            yield "miss", name, None
        if self._left["delay"] and member.plans():
            yield "delay", name, None
        if self._left["leave"] and not member.claiming.leaving:
            yield "leave", name, None

    def _steps_of_commits(self, name: str, member: Member) -> Iterator[Action]:
        if member.commits and member.sent is None:
            decided = member.commits[0].stage == "decided"
            yield "send" if decided else "look up", name, None
        ended = not member.commits or not self.rules.ends_its_commits_before_it_accepts
        if member.assigned and ended:
            yield "accept", name, None

    def _own_actions(self, name: str, member: Member) -> Iterator[Action]:
        if not member.leased:
            yield "confirm", name, None
        if member.seen_members != frozenset(self.present):
            yield "see members", name, None
        if not self._eager and member.seen_plan != self._plan:
            yield "see plan", name, None
        if member.refused and self.rules.claims_again_what_was_refused:
            yield "pause", name, None
        steps = member.next_steps()
        if (steps.claim - member.refused) or steps.revoke or steps.release or member.plans():
            yield "step", name, None
        elif member.claiming.leaving and not (member.claiming.held or member.commits):
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
        claiming = self.rules.member(eager=self._eager)
        planning = self.rules.planning(name, self._assignor, led=not self._eager)
        planning.see_partitions(dict.fromkeys(self.keys))
        self.members[name] = Member(claiming, planning, self._sessions)
        self.present[name] = self._sessions

    def _see_members(self, name: str) -> None:
        member = self.members[name]
        member.seen_members = frozenset(self.present)
        member.planning.see_members({each: {"q": 1} for each in sorted(self.present)})

    def _see_plan(self, name: str) -> None:
        member = self.members[name]
        member.seen_plan = self._plan
        member.planning.see_plan(dict(self._plan))

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

    def _step(self, name: str) -> None:
        member = self.members[name]
        plan = member.planning.replan()
        if plan is not None:
            self._write_plan(tuple(sorted(plan.items())))
        wanted = member.planning.wanted()
        member.claiming.request(wanted, regrouped=member.planning.regrouped)
        member.planning.regrouped = False
        doubtful = member.claiming.held
        steps = member.claiming.steps()
        for key in sorted(steps.claim):
            if key in member.refused:  # It is not asked for now.
                member.answer(key, doubtful=key in doubtful)
            else:
                member.begun[key] = "create"
        member.begun |= dict.fromkeys(sorted(steps.revoke), "release")
        for key in steps.revoke:
            member.assigned.pop(key, None)
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
            member.claims[key] = self._offsets.begin_claim(key)
            self._read(member, key)
        elif stage == "read":
            self._read(member, key)
        elif stage == "ask":
            if (lives and member.leased) or not self.rules.asks_for_its_session_before_it_bumps:
                member.begun[key] = "bump"
            else:
                self._refuse(member, key, doubtful=self.rules.doubts_what_got_no_answer)
        elif self.rules.bumps_compare_the_version and (
            member.read[key][0] != self._offsets.versions[key]
        ):
            member.begun[key] = "read"
        else:
            self._bump(name, member, key)

    def _read(self, member: Member, key: PartitionKey) -> None:
        member.read[key] = self._offsets.versions[key], self._offsets.positions[key]
        member.begun[key] = "ask"

    def _refuse(self, member: Member, key: PartitionKey, *, doubtful: bool = False) -> None:
        member.refused.add(key)
        member.answer(key, doubtful=doubtful)

    def _bump(self, name: str, member: Member, key: PartitionKey) -> None:
        """The version of an offset is counted up, and the partition is consumed from there."""
        _, position = member.read.pop(key)
        before = position != self._offsets.positions[key]
        if self.present.get(name) == member.session and before:
            raise ViolationError(f"{name} begins {key} before an offset that was committed")
        member.assigned[key] = self._offsets.bump(name, key, member.claims[key], position)
        member.answer(key, owned=True)
        # To accept that later would keep a consumer from committing, and nothing else.
        if not (member.commits and self.rules.commits_for_what_it_accepted_only):
            member.accept()

    def _accept(self, name: str) -> None:
        self.members[name].accept()

    def _release(self, name: str, key: PartitionKey) -> None:
        """A consumer gives up what it had to give up."""
        member = self.members[name]
        member.late.discard(key)
        revokes = member.claiming.revokes(key)
        if self.rules.releases_what_is_revoked_only and not revokes:
            return
        mine = self.owners.get(key) == (name, member.session)
        if mine or not self.rules.releases_only_its_own:
            self.owners.pop(key, None)
        if revokes:
            member.known.pop(key, None)
            member.claiming.released(key)

    def _lose(self, name: str, key: PartitionKey) -> None:
        """A claim is made, but its answer gets lost."""
        self._left["lose"] -= 1
        member = self.members[name]
        del member.begun[key]
        self.owners[key] = name, member.session
        member.answer(key, doubtful=self.rules.doubts_what_got_no_answer)

    def _commit(self, name: str, key: PartitionKey) -> None:
        """One more message is handed out, and to be committed, whatever becomes of the session."""
        self._commits -= 1
        self.members[name].hand_out(key)

    def _send(self, name: str) -> None:
        """The next commit is sent, with what is known now; it may arrive whenever it wants."""
        member = self.members[name]
        commit = member.commits[0]
        known = member.known.get(commit.key)
        if known is None:
            member.commits = member.commits[1:]
            return
        sent = dataclasses.replace(commit, stage="sent", known_by=known.by)
        self._send_commit(name, sent, known.version)

    def _send_commit(self, name: str, commit: Commit, version: int) -> None:
        sent = dataclasses.replace(commit, version=version)
        self.members[name].turn_commit(sent)
        self._commits_sent += ((name, sent),)

    def _arrive(self, index: int) -> None:
        name, commit = self._commits_sent[index]
        self._commits_sent = self._commits_sent[:index] + self._commits_sent[index + 1 :]
        version = self._offsets.write(name, commit)
        member = self.members.get(name)
        if member is None or member.sent != commit:
            return  # Nobody waits for the answer any more.
        if version is None and commit.stage == "sent":
            member.turn_commit(dataclasses.replace(commit, stage="refused"))
        else:
            member.end_commit(version)

    def _miss(self, name: str) -> None:
        """No answer comes. The request may arrive yet."""
        self._left["miss"] -= 1
        member = self.members[name]
        member.turn_commit(dataclasses.replace(member.commits[0], stage="unanswered"))

    def _look_up(self, name: str) -> None:
        """Ask what became of a commit that was not answered, or was refused."""
        member = self.members[name]
        commit = member.commits[0]
        claim = member.claims[commit.key]
        looks = Looks(self.rules.offsets, self._offsets, name, commit, claim)
        if commit.stage == "refused":
            again = looks.version_to_send_again()
            if again is None:
                member.end_commit(None)
            else:
                self._send_commit(name, dataclasses.replace(commit, stage="sent again"), again)
            return
        version = looks.moved()
        if version is not None and self._offsets.consumers[commit.key] != commit.claim:
            raise ViolationError(f"{name} takes what another claim wrote for its own commit")
        member.end_commit(version)

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
        member.commits = ()

    def _end(self, name: str) -> None:
        """The service ends a session."""
        del self.present[name]
        session = self.members[name].session
        self.owners = {key: by for key, by in self.owners.items() if by != (name, session)}

    def _learn(self, name: str) -> None:
        """A member learns that its session is over, and comes again."""
        member = self.members[name]
        self._drop(member)
        self._sessions += 1
        member.session, member.leased = self._sessions, True
        self.present[name] = member.session

    def _cut(self, name: str) -> None:
        """A member is cut off for so long that it takes its session for over; but it lives on."""
        self._left["cut"] -= 1
        self._drop(self.members[name])

    def _drop(self, member: Member) -> None:
        member.late |= {key for key, stage in member.begun.items() if stage == "release"}
        member.begun.clear()
        member.refused.clear()
        if self.rules.forgets_with_its_session:
            member.drop()

    def _leave(self, name: str) -> None:
        """It closes: it gives up what it has, and departs when that is done."""
        self._left["leave"] -= 1
        self.members[name].claiming.leave()

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
                if member.alive and (member.leased or not leased) and key in member.claiming.owned
            ]
            if len(able) > 1:
                raise ViolationError(f"{' and '.join(able)} hand out messages of {key}")

    def check_settled(self) -> None:
        """When nothing happens any more, each partition is with its right owner."""
        alive = {name for name, member in self.members.items() if member.alive}
        view = GroupView(
            {name: {"q": 1} for name in sorted(alive)},
            dict.fromkeys(self.keys),
            dict(self._owners_now()),
        )
        if self._assignor(view) != view.owners:
            raise ViolationError(f"it settles with {dict(view.owners)}")
        for key, name in view.owners.items():
            if key not in self.members[name].claiming.owned:
                raise ViolationError(f"{name} has {key}, and does not know it")
            if not self._can_commit(name, key):
                raise ViolationError(f"{name} has {key}, and can't commit")

    def _can_commit(self, name: str, key: PartitionKey) -> bool:
        member = self.members[name]
        known = member.known[key]
        commit = Commit(key, known.claim, known.position, version=known.version, known_by=known.by)
        service, claim = self._offsets.copied(), member.claims[key]
        return Looks(self.rules.offsets, service, name, commit, claim).moved() is not None
