"""Which hub owns a topic: elected by compare-and-set, as in Hedwig.

A record of an owner counts only while that very incarnation is available; where records end with
the session of their hub, it counts for as long as it is there. The rules:

- A hub that is not available itself acquires nothing: another would take it at once.
- Whether an owner is available is asked after its record was read, and answered as it is then: an
  owner is available before it becomes one.
- A record that counts no more is replaced if it is still the one that was read, however long ago
  that was: what was read on the way to an election need not be read again.
- A hub writes its own record again, each time that it acquires the topic: what another read before,
  when this hub was not available for a moment, is not the record any more.

So of several hubs one becomes the owner, each version is one hub's, and a hub that acquired a topic
keeps it until it releases it, for as long as it stays available. One that stands still does not
notice when it is not any more: what it writes to the log is fenced there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hqueue.errors import (
    BadVersionError,
    NoTopicOwnerInfoError,
    Outcome,
    StoreUnavailableError,
)
from hqueue.metadata.managers.availability import Availability
from hqueue.metadata.managers.following import following
from hqueue.metadata.managers.infos import HubInfo, Versioned
from hqueue.metadata.managers.topics import TopicOwnershipManager
from hqueue.metadata.ports import NEW, Version
from hqueue.runtime.steps import Wait, Work
from hqueue.runtime.stepwise import Stepwise

__all__ = ["OwnerElection", "Verdict", "version_to_replace"]

TRIES_MAX = 100
"""How often other hubs may be faster, or leave, before an election is given up."""


class Verdict(NamedTuple):
    """The result of an election: whether the hub that asked owns the topic now."""

    owner: HubInfo
    version: Version
    """The version of the owner's record, with which the owner releases the topic."""
    won: bool
    """Whether the hub that asked is the owner."""


def version_to_replace(found: Versioned[HubInfo] | None, hub: HubInfo) -> Version | None:
    """With which version a hub writes itself over what it found; None if that is another hub's, to
    be asked about first.
    """
    if found is None:
        return NEW
    return found.version if found.value.incarnation == hub.incarnation else None


class OwnerElection(Stepwise):
    """Elects the owners of a queue's topics. Thread-safe. No thread waits for an election, so any
    number of them go on at once.

    Args:
        ownership: the owners' records.
        availability: which hubs are available.
        ephemeral: asks whether an owner's record ends with the session of its hub, in the store
            that is in force now.
    """

    def __init__(
        self,
        ownership: TopicOwnershipManager,
        availability: Availability,
        *,
        ephemeral: Callable[[], Wait],
    ) -> None:
        self._ownership = ownership
        self._availability = availability
        self._ephemeral = ephemeral

    @following
    def acquire(
        self, topic: str, hub: HubInfo, instead_of: Version | None = None
    ) -> Work[Any, Verdict]:
        """Make a hub the owner of a topic, unless another hub owns it.

        The future's errors are those of the store, and `StoreUnavailableError` if the hub is not
        available, or other hubs were faster again and again. With an unknown outcome the hub may
        have become the owner: acquire the topic again to find out.

        Args:
            topic: the topic.
            hub: the hub.
            instead_of: the version of an owner's record that was read and then found to be invalid;
                `NEW` if there was no record. If it is None or outdated, the record is read.
        """
        if not (yield from self._availability.ask.steps(hub)):
            raise StoreUnavailableError(
                "the hub is not available, so it can't acquire the topic",
                outcome=Outcome.NOT_APPLIED,
                address=str(hub.address),
                incarnation=hub.incarnation,
            )
        version = instead_of
        for _ in range(TRIES_MAX):
            if version is None:
                ephemeral = yield self._ephemeral()
                found = yield from self._ownership.read_owner_info.steps(topic)
                if ephemeral != (yield self._ephemeral()):
                    continue  # They were moved meanwhile.
                version = version_to_replace(found, hub)
                if version is None:
                    assert found is not None
                    if ephemeral or (yield from self._availability.ask.steps(found.value)):
                        return Verdict(found.value, found.version, won=False)
                    version = found.version
            try:
                written = yield from self._ownership.write_owner_info.steps(topic, hub, version)
            except (BadVersionError, NoTopicOwnerInfoError):
                version = None
                continue
            return Verdict(hub, written, won=True)
        raise StoreUnavailableError(
            "other hubs took over the topic before every attempt: try again",
            topic=topic,
            outcome=Outcome.NOT_APPLIED,
        )

    @following
    def release(self, topic: str, owned: Verdict) -> Work[Any, bool]:
        """Remove a topic's owner, if it is still the one in this election's result. Returns whether
        it was.
        """
        found = yield from self._ownership.read_owner_info.steps(topic)
        if found is None or found.value.incarnation != owned.owner.incarnation:
            return False
        try:
            yield from self._ownership.delete_owner_info.steps(topic, owned.version)
        except (BadVersionError, NoTopicOwnerInfoError):
            return False
        return True

    @following
    def is_available(self, hub: HubInfo) -> Work[Any, bool]:
        """Whether an incarnation of a hub is available. The answer is no older than the call."""
        return self._availability.ask.steps(hub)
