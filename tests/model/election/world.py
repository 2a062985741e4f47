"""One topic in one moment: its owner's record, which hubs are available, and what each is about."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

from hqueue.metadata.managers import HubInfo, Versioned
from hqueue.metadata.managers.election import version_to_replace
from hqueue.metadata.ports import NEW, Version
from hqueue.settings.addresses import Address
from tests.model.groups.world import ViolationError

__all__ = ["Action", "Bounds", "Rules", "World"]

Action = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Rules:
    """The rules of the election, and of what it stands on. Each is taken out once."""

    asks_after_it_read_the_owner: bool = True
    """Else it relies on the list of hubs that it saw before."""
    is_answered_as_it_is_then: bool = True
    """Else by a server that lags behind."""
    replaces_what_it_read_only: bool = True
    creates_where_nothing_is_only: bool = True
    writes_its_own_again: bool = True
    compares_incarnations: bool = True
    """Else addresses: a hub that starts again has the same one."""
    takes_over_from_who_is_gone: bool = True
    releases_its_own_version_only: bool = True
    versions_are_never_used_again: bool = True


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What may happen at most."""

    hubs: tuple[str, ...] = ("a", "b")
    ends: int = 1
    """Sessions that end although their hub lives."""
    restarts: int = 0
    releases: int = 0
    lost_answers: int = 0


@dataclasses.dataclass
class _Hub:
    """A hub's process: what it knows, and what it is about."""

    info: HubInfo
    session: int
    stage: str = ""
    begun_by: int = 0
    """The session that was there when it began."""
    looks: bool = False
    """Whether it reads before it begins, as a hub does on its way to an election."""
    seen: frozenset[HubInfo] = frozenset()
    """The available hubs, as it saw them some time ago."""
    found: Versioned[HubInfo] | None = None
    version: Version | None = None
    """What it writes over."""
    held: tuple[Version, int] | None = None
    """The version that it owns the topic with, and by which session it acquired it."""


class World:
    """A topic, and everything that can happen next to it.

    Args:
        bounds: what may happen at most.
        rules: those that are kept.
    """

    def __init__(self, bounds: Bounds, rules: Rules = Rules()) -> None:
        self.rules = rules
        self._sees = not (rules.asks_after_it_read_the_owner and rules.is_answered_as_it_is_then)
        self._left = {
            "end": bounds.ends,
            "restart": bounds.restarts,
            "release": bounds.releases,
            "lose": bounds.lost_answers,
        }
        self._sessions = 0
        self._starts = 0
        self._versions = 0
        self.record: Versioned[HubInfo] | None = None
        self.available: dict[HubInfo, int] = {}
        self.winners: dict[Version, HubInfo] = {}
        self.hubs: dict[str, _Hub] = {}
        for name in bounds.hubs:
            self._start(name)

    def copied(self) -> World:
        """The same in the same state."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                setattr(other, name, value.copy())
        other.hubs = {name: dataclasses.replace(hub) for name, hub in self.hubs.items()}
        return other

    def key(self) -> str:
        """Differs for states that differ in more than in how far one has counted."""
        counted = self.rules.versions_are_never_used_again
        hubs = [hub for _, hub in sorted(self.hubs.items())]
        versions = {self.record.version} if self.record else set()
        versions |= {hub.found.version for hub in hubs if hub.found}
        versions |= {hub.held[0] for hub in hubs if hub.held}
        sessions = {hub.session for hub in hubs} | {hub.begun_by for hub in hubs}
        sessions |= {hub.held[1] for hub in hubs if hub.held}
        rank = {each: number for number, each in enumerate(sorted(versions))} if counted else {}
        by = {each: number for number, each in enumerate(sorted(sessions))}
        parts = [
            (
                hub.info,
                by[hub.session],
                by[hub.begun_by],
                hub.stage,
                hub.looks,
                sorted(hub.seen, key=str),
                hub.found and (hub.found.value, rank.get(hub.found.version, hub.found.version)),
                rank.get(hub.version, hub.version) if hub.version is not None else None,
                hub.held and (rank.get(hub.held[0], hub.held[0]), by[hub.held[1]]),
            )
            for hub in hubs
        ]
        record = self.record and (
            self.record.value,
            rank.get(self.record.version, self.record.version),
        )
        there = sorted((str(info), by.get(session)) for info, session in self.available.items())
        return repr((parts, record, there, self._left, 0 if counted else self._versions))

    def actions(self, *, faults: bool = True) -> Iterator[Action]:
        """What can happen next; without faults, what hubs do by themselves."""
        for name, hub in self.hubs.items():
            present = self.available.get(hub.info) == hub.session
            if not present:
                yield "register", name
            if self._sees and hub.seen != frozenset(self.available):
                yield "see", name
            if hub.stage:
                yield hub.stage, name
                if hub.stage == "write" and self._left["lose"] and faults:
                    yield "lose", name
            elif self._is_wanted(hub) or (faults and present and hub.held is None):
                yield "begin", name
                yield "look", name
            if not faults:
                continue
            if self._left["end"] and present:
                yield "end", name
            if self._left["restart"]:
                yield "restart", name
            if self._left["release"] and hub.held is not None and not hub.stage:
                yield "release", name

    def perform(self, action: Action) -> None:
        """Let it happen.

        Raises:
            ViolationError: a promise is broken by it.
        """
        kind, name = action
        getattr(self, f"_{kind}")(name)

    # What happens.

    def _start(self, name: str) -> None:
        self._starts += 1
        self._sessions += 1
        info = HubInfo(Address(name, 4_080), str(self._starts))
        self.available = {k: v for k, v in self.available.items() if k.address.host != name}
        self.available[info] = self._sessions
        seen = frozenset(self.available) if self._sees else frozenset()
        self.hubs[name] = _Hub(info, self._sessions, seen=seen)

    def _restart(self, name: str) -> None:
        """It crashes, and is another incarnation at the same address."""
        self._left["restart"] -= 1
        self._start(name)

    def _end(self, name: str) -> None:
        self._left["end"] -= 1
        del self.available[self.hubs[name].info]

    def _register(self, name: str) -> None:
        """It learns that its session is over, and becomes available by the next one: what it owned
        it acquires again.
        """
        hub = self.hubs[name]
        self._sessions += 1
        hub.session, hub.held = self._sessions, None
        self.available[hub.info] = hub.session

    def _see(self, name: str) -> None:
        self.hubs[name].seen = frozenset(self.available)

    def _look(self, name: str) -> None:
        """It reads, and begins an election later: by what it read, if that may be replaced."""
        hub = self.hubs[name]
        hub.stage, hub.looks = "read", True

    def _begin(self, name: str) -> None:
        hub = self.hubs[name]
        known, hub.looks = hub.version is not None, False
        if hub.info not in self.available:
            hub.stage, hub.found, hub.version = "", None, None
            return
        hub.stage, hub.begun_by = "write" if known else "read", hub.session

    def _read(self, name: str) -> None:
        hub = self.hubs[name]
        hub.found = self.record
        hub.version = version_to_replace(self.record, hub.info)
        if hub.version is None:
            hub.stage = "ask"
        elif hub.looks:
            hub.stage, hub.version = "begin", NEW if hub.version == NEW else None
        elif hub.version != NEW and not self.rules.writes_its_own_again:
            assert hub.found is not None
            hub.stage, hub.held = "", (hub.found.version, hub.begun_by)
        else:
            hub.stage = "write"

    def _ask(self, name: str) -> None:
        hub = self.hubs[name]
        assert hub.found is not None
        as_it_is = self.rules.asks_after_it_read_the_owner and self.rules.is_answered_as_it_is_then
        there = frozenset(self.available) if as_it_is else hub.seen
        owner = hub.found.value
        if self.rules.compares_incarnations:
            lives = owner in there
        else:
            lives = any(owner.address == each.address for each in there)
        if lives or not self.rules.takes_over_from_who_is_gone:
            hub.stage, hub.found, hub.looks = "", None, False
        else:
            hub.stage, hub.version = "begin" if hub.looks else "write", hub.found.version

    def _write(self, name: str) -> None:
        hub = self.hubs[name]
        if self._apply(hub):
            assert self.record is not None
            hub.stage, hub.held = "", (self.record.version, hub.begun_by)
            hub.found = hub.version = None
        else:
            hub.stage, hub.found, hub.version = "read", None, None

    def _lose(self, name: str) -> None:
        """It writes, and its answer gets lost."""
        self._left["lose"] -= 1
        hub = self.hubs[name]
        self._apply(hub)
        hub.stage, hub.found, hub.version = "", None, None

    def _release(self, name: str) -> None:
        self._left["release"] -= 1
        hub = self.hubs[name]
        assert hub.held is not None
        version, hub.held = hub.held[0], None
        known = None if self.record is None else self.record.version
        if known == version or not self.rules.releases_its_own_version_only:
            self._check_nobody_loses(hub)
            self.record = None
            if not self.rules.versions_are_never_used_again:
                self._versions = 0

    def _apply(self, hub: _Hub) -> bool:
        """Write a hub over what it found, if that is still there."""
        if hub.version == NEW:
            if self.record is not None and self.rules.creates_where_nothing_is_only:
                return False
        elif self.record is None or (
            self.rules.replaces_what_it_read_only and self.record.version != hub.version
        ):
            return False
        self._check_nobody_loses(hub)
        self._versions += 1
        version = Version(self._versions)
        self.record = Versioned(hub.info, version)
        if self.winners.setdefault(version, hub.info) != hub.info:
            raise ViolationError(f"two hubs have had version {version}")
        return True

    # What must hold.

    def _check_nobody_loses(self, by: _Hub) -> None:
        """What a hub acquired, and has been available ever since, no other takes."""
        for name, hub in self.hubs.items():
            if hub is by or hub.held is None or self.record is None:
                continue
            version, session = hub.held
            if version == self.record.version and self.available.get(hub.info) == session:
                raise ViolationError(f"{name} is available, and loses the topic")

    def _is_wanted(self, hub: _Hub) -> bool:
        """Whether the topic has no owner that is available, or one that does not know it."""
        if self.record is None or self.record.value not in self.available:
            return hub.info in self.available
        return self.record.value == hub.info and hub.held is None

    def check_settled(self) -> None:
        """When nothing happens any more, one hub owns the topic, is available, and knows it."""
        owner = None if self.record is None else self.record.value
        if owner not in self.available:
            raise ViolationError(f"it settles with {owner}")
        for hub in self.hubs.values():
            assert self.record is not None
            knows = hub.held is not None and hub.held[0] == self.record.version
            if (hub.info == owner) != knows:
                raise ViolationError(f"{hub.info} does not know who owns the topic")
