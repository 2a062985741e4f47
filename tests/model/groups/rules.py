"""The rules of a group, and what may happen to it."""

from __future__ import annotations

import dataclasses

from hqueue.groups.offsets import GroupOffsets
from hqueue.groups.planning import Planning
from hqueue.metadata.claiming import Claiming

__all__ = ["ALL_RULES", "Bounds", "Rules", "ViolationError"]


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
    commits_for_what_it_accepted_only: bool = True
    """A claim counts for commits when its consumer knows of it, and not when it is made: what was
    handed out until then is of an earlier one."""
    ends_its_commits_before_it_accepts: bool = True
    """What was decided for an earlier claim is sent and answered, or given up, before a later one
    counts for commits."""
    hands_out_with_a_lease_only: bool = True
    releases_only_its_own: bool = True
    """A release deletes the node of its own session, and no other."""
    releases_what_is_revoked_only: bool = True
    """A release that comes late finds what was claimed again, and leaves it."""
    forgets_with_its_session: bool = True
    claims_again_what_was_refused: bool = True
    doubts_what_got_no_answer: bool = True
    """A claim whose answer was lost is released, or claimed again."""
    member: type[Claiming] = Claiming
    planning: type[Planning] = Planning
    offsets: type[GroupOffsets] = GroupOffsets
    """What becomes of a commit without an answer, and of one that was refused."""


ALL_RULES = Rules()


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What may happen at most."""

    partitions: int = 2
    members: tuple[str, ...] = ("a", "b")
    late: tuple[str, ...] = ()
    """Members that come some time later."""
    ends: int = 1
    """Sessions that end although their member lives, or has just stood still."""
    cuts: int = 0
    """Sessions that their members take for over, and that live on."""
    crashes: int = 0
    leaves: int = 0
    lost_answers: int = 0
    """Claims that are made without an answer to the claimer."""
    commits: int = 1
    missed_commits: int = 0
    """Commits that are made, or not, or some time later, without an answer to the sender."""
    late_plans: int = 0
    """Plans that arrive some time after they were sent."""
