"""What a coordination service must do. What all of it has in common is said in the package."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from hqueue.errors import HQueueError
from hqueue.message import MessageID
from hqueue.metadata.append_keys import AppendKeys
from hqueue.metadata.records import (
    Checkpoint,
    PartitionKey,
    Presence,
    SubscriptionKey,
    WorkerRecord,
)

__all__ = [
    "AppendKeyPort",
    "CheckpointPort",
    "Coordination",
    "OwnerPort",
    "Registration",
    "SessionState",
    "SubscriptionPort",
    "Watch",
    "WorkerPort",
]


class SessionState(enum.Enum):
    """The state of the connection to the coordination service."""

    CONNECTED = "connected"

    SUSPENDED = "suspended"
    """The connection is cut. What was present still is, for a while: nobody knows better. What
    acts by right of a claim pauses; nothing is dropped."""

    LOST = "lost"
    """The session is over: everything that was present by it is gone, and claims may be another's
    already. Registrations are made again with the next session, claims are not."""


class Watch(Protocol):
    """A listener that is called with changes, until it is closed."""

    def close(self) -> None:
        """Call it no more. A call that is under way may still end. Never raises."""


class Registration(Protocol):
    """Something that is present, and is made again after its session was lost, until closed."""

    @property
    def failure(self) -> HQueueError | None:
        """Why it could not be made again: it is gone for good. None while all is well."""

    def close(self) -> None:
        """Remove what this registration made, and only that. Never raises: what can't be removed
        now disappears with the session.
        """


class SubscriptionPort(Protocol):
    """Who wants what."""

    def register(
        self,
        queue: str,
        subscriber: str,
        presence: Presence,
        partitions: Collection[int],
        on_failure: Callable[[HQueueError], None],
    ) -> Registration:
        """Make a subscriber present in some partitions. Their checkpoints exist already.

        One that seems to be present already, at another address, may have died a moment ago: it
        is waited for until its session must be over. One at the very same address can't be alive,
        because the caller listens there; it is replaced.

        Args:
            on_failure: called if the registration can't be made again after a session was lost:
                another subscriber of that name may have come.

        Raises:
            SubscriberConnectedError: another subscriber of that name stays present.
            SubscriberNotFoundError: a checkpoint is missing.
        """

    def list(self, queue: str | None = None) -> Mapping[SubscriptionKey, Presence | None]:
        """Every subscriber in every partition of a queue, or of all; None for one that is not
        present. A record that can't be read is left out, and logged.
        """

    def watch(self, listener: Callable[[Mapping[SubscriptionKey, Presence]], None]) -> Watch:
        """Tell a listener who is present, in all queues: the whole view, when it is first known
        and after each change.

        Changes that come together are reported once. The listener is called by one thread, never
        twice at a time. While the session is suspended the last view stands; after that, and
        after it was lost, the view is read again. A record that can't be read is left out, and
        logged. Costs nothing while nothing changes; checkpoints are not looked at.
        """


class CheckpointPort(Protocol):
    """How far each subscriber is."""

    def read(self, key: SubscriptionKey) -> Checkpoint | None:
        """A checkpoint as it is now; None if there is none."""

    def read_many(self, keys: Iterable[SubscriptionKey]) -> Mapping[SubscriptionKey, Checkpoint]:
        """Those of these checkpoints that exist, in a few round trips."""

    def create(
        self, starts: Mapping[SubscriptionKey, MessageID]
    ) -> Mapping[SubscriptionKey, Checkpoint]:
        """Create checkpoints where there are none; returns what is there now for each key."""

    def compare_and_set(
        self, key: SubscriptionKey, known: Checkpoint, next_id: MessageID
    ) -> Checkpoint:
        """Move a checkpoint ahead, if nobody changed it since it was `known`.

        When the answer is lost it is looked up, so this either happened or it did not.

        Raises:
            InvalidInputError: it would go back. Only `seek` may.
            CheckpointMovedError: it was changed or deleted by somebody else; a caller that thinks
                it is in charge of this checkpoint no longer is.
            StoreUnavailableError: with an outcome.
        """

    def seek(self, starts: Mapping[SubscriptionKey, MessageID]) -> None:
        """Set checkpoints, also back, of a subscriber that is not present: each only if it isn't,
        and all or none of as many as the service changes at once. That is at least 250, unless
        the service's own root has a name of more than 200 bytes.

        Raises:
            SubscriberConnectedError: it is present.
            SubscriberNotFoundError: there is no such checkpoint.
        """

    def delete(self, keys: Iterable[SubscriptionKey]) -> None:
        """Forget a subscriber that is not present. What isn't there counts as done.

        Raises:
            SubscriberConnectedError: it is present.
        """


class WorkerPort(Protocol):
    """Which workers are there."""

    def register(
        self, worker: WorkerRecord, on_failure: Callable[[HQueueError], None]
    ) -> Registration:
        """Make a worker present. Names are chosen by the workers, different for each process.

        Raises:
            RequestRefusedError: there is a worker of that name.
        """

    def update(self, worker: WorkerRecord) -> None:
        """Change the record of a worker that this session registered."""

    def list(self) -> Mapping[str, WorkerRecord]:
        """All workers that are present, by name."""

    def watch(self, listener: Callable[[Mapping[str, WorkerRecord]], None]) -> Watch:
        """Tell a listener which workers are present; as `SubscriptionPort.watch`."""


class OwnerPort(Protocol):
    """Which worker serves a partition. A claim is present by the claimer's session."""

    def claim(self, worker: str, partitions: Collection[PartitionKey]) -> set[PartitionKey]:
        """Claim partitions that nobody has; returns those that are this session's now.

        Never made again after a lost session: a worker that wants it back claims it again.
        """

    def release(self, partitions: Collection[PartitionKey]) -> None:
        """Give up claims of this session; others stay. What isn't there counts as done."""

    def list(self) -> Mapping[PartitionKey, str]:
        """Every claim: which worker has which partition."""

    def watch(self, listener: Callable[[Mapping[PartitionKey, str]], None]) -> Watch:
        """Tell a listener of the claims; as `SubscriptionPort.watch`."""


class AppendKeyPort(Protocol):
    """The keys that notifications of appends are signed with. Readable by those that have the
    right to read, and nobody else.
    """

    def read(self) -> AppendKeys | None:
        """The keys as they are now; None if nobody made any yet."""

    def replace(self, known: AppendKeys | None, keys: AppendKeys) -> AppendKeys | None:
        """Put these keys in place of those that are known, None for none, if they still are what
        is there; returns what is there then: these, or those of one who was faster, or None if
        they were deleted.
        """

    def watch(self, listener: Callable[[AppendKeys | None], None]) -> Watch:
        """Tell a listener of the keys; as `SubscriptionPort.watch`. None where there are none, or
        none that this release knows how to read.
        """


class Coordination(Protocol):
    """A session with a coordination service. Thread-safe."""

    @property
    def subscriptions(self) -> SubscriptionPort: ...

    @property
    def checkpoints(self) -> CheckpointPort: ...

    @property
    def workers(self) -> WorkerPort: ...

    @property
    def owners(self) -> OwnerPort: ...

    @property
    def append_keys(self) -> AppendKeyPort: ...

    @property
    def state(self) -> SessionState:
        """The session's state as far as it is known here."""

    def on_state(self, listener: Callable[[SessionState], None]) -> Watch:
        """Tell a listener of every change of state, in order, beginning with the state now.

        It is called by a thread that must not be held up: it takes notice and returns. A session
        is LOST when the service says so, or when the connection stays cut for longer than the
        service would keep the session: then nothing that was present can be relied on.
        """

    def confirm(self) -> float:
        """Ask the service whether the session still is; until when that is certain.

        One round trip, and no wait for a connection. Until the time that it returns, on the
        clock of `hqueue.runtime.clock.SYSTEM_CLOCK.monotonic_ms`, nobody else can have what is
        present by this session: a worker that acts by right of a claim looks at that clock before
        each act, for a process that stood still learns of a lost session only after it goes on.

        Raises:
            StoreUnavailableError: there is no connection now, or no answer came.
        """

    def close(self) -> None:
        """End the session: what is present by it disappears at once. Never raises."""
