"""Decides what a hub does with a call for a topic that it does not serve yet: Hedwig's flow.

Everything here is pure. `next_step` gets what is known, and returns the next step. The caller takes
the step and asks again with what it learned, until the step is `Serve` or `Redirect`.

                         ┌─ topic missing ─▶ Create ─▶ (again)
    call ─▶ what is known┤
                         ├─ owner is me ──────────────▶ Own
                         ├─ owner is another ─────────▶ Redirect to it
                         └─ no owner ┬─ redirected ───▶ Own
                                     └─ not redirected, one is chosen ┬─ me ──────▶ Own
                                                                      └─ another ─▶ Redirect to it
    Own ─▶ won ─▶ Serve          Own ─▶ lost the race ─▶ Redirect to the winner

A hub that owns the topic by the records, but does not serve it, acquires it again: it may have lost
its session meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from hqueue import Address

__all__ = ["CREATE", "OWN", "SERVE", "Known", "Redirect", "Step", "next_step"]


@dataclasses.dataclass(frozen=True, slots=True)
class Redirect:
    """The caller must call this hub."""

    address: Address


@dataclasses.dataclass(frozen=True, slots=True)
class _Named:
    name: str


CREATE = _Named("create")
"""Create the topic; that another was quicker is as good."""

OWN = _Named("own")
"""Try to become the topic's owner."""

SERVE = _Named("serve")
"""This hub owns the topic."""

Step = _Named | Redirect


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What is known of a topic.

    Args:
        exists: whether the topic has been created.
        owner: the hub that owns it, if that hub is available.
        won: whether this hub became its owner; None if it has not tried.
    """

    exists: bool
    owner: Address | None = None
    won: bool | None = None


def next_step(
    known: Known, me: Address, *, redirected: bool, choose: Callable[[], Address]
) -> Step:
    """The next step for a call.

    Args:
        known: what is known of the topic.
        me: this hub.
        redirected: whether another hub sent the caller here.
        choose: chooses a hub, perhaps this one. Called only if the choice is needed.
    """
    if known.won is not None:
        if known.won:
            return SERVE
        assert known.owner is not None
        return Redirect(known.owner)
    if not known.exists:
        return CREATE
    if known.owner is not None:
        return OWN if known.owner == me else Redirect(known.owner)
    if redirected:
        return OWN
    chosen = choose()
    return OWN if chosen == me else Redirect(chosen)
