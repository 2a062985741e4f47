"""What push delivery needs of a coordination service: small records, presence, and claims.

Subscribers and workers are written against these ports alone; `hqueue.zookeeper` provides them.
Nothing in them is a path or a session's detail, so that another store with compare-and-set and
leases can stand behind them. How a record looks as bytes is in `hqueue.records`. A client's
session is `Client.coordination`.

Each method is bounded by the operation's bound of its settings and repeats what is safe to
repeat. Each raises

- `StoreUnavailableError` when the service gave no usable answer within the bound;
- `RequestRefusedError` when it will not do it (access rights, for example);
- `UnsupportedFormatError` for a record of a version that this release doesn't know;
- `ClosedError` after `Coordination.close`, and in a forked child.

What exists for as long as its maker lives is called *present*: it disappears by itself when the
maker's session ends, orderly or not, and never because of a connection that was merely cut and
came back in time.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from hqueue.errors import HQueueError, InvalidInputError
from hqueue.message import MessageID, topic_bytes

__all__ = [
    "Address",
    "Checkpoint",
    "CheckpointPort",
    "Coordination",
    "DeliveryOptions",
    "OwnerPort",
    "PartitionKey",
    "Presence",
    "Registration",
    "SessionState",
    "SubscriptionKey",
    "SubscriptionPort",
    "Watch",
    "WorkerPort",
    "WorkerRecord",
    "check_name",
]

NAME_LENGTH_MAX = 200


class Address(NamedTuple):
    """Where a Thrift server listens. Written ``host:port``; IPv6 hosts stand in brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read what ``str(address)`` gave.

        Raises:
            InvalidInputError: it is no host and port.
        """
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if (
            not colon
            or not host
            or any(c.isspace() for c in host)
            or not (port.isascii() and port.isdecimal() and 1 <= int(port[:6]) <= 65_535)
        ):
            raise InvalidInputError("an address is written host:port", address=text)
        return cls(host, int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*", re.ASCII)


def check_name(name: object) -> str:
    """The name of a subscriber, a worker or a work.

    Raises:
        InvalidInputError: it has other characters than a queue's name, or is too long.
    """
    if not isinstance(name, str) or len(name) > NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise InvalidInputError(
            "the name of a subscriber, a worker or a work has letters, digits, '_', '-' and '.', "
            "begins with none of the last two, and has at most 200 characters",
            name=name,
        )
    return name


class PartitionKey(NamedTuple):
    """A partition of a queue."""

    queue: str
    partition: int


class SubscriptionKey(NamedTuple):
    """One subscriber's interest in one partition: what has a checkpoint, and is delivered to."""

    queue: str
    partition: int
    subscriber: str

    @property
    def partition_key(self) -> PartitionKey:
        return PartitionKey(self.queue, self.partition)


@dataclasses.dataclass(frozen=True, slots=True)
class DeliveryOptions:
    """How a subscriber wants its messages delivered. Times in milliseconds.

    Raises:
        InvalidInputError: an option is out of range.
    """

    attempts_max: int | None = None
    """How often a message may be answered with *retry* before it goes to the dead letters; None
    for no limit. A subscriber that can't be reached is no attempt."""

    backoff_ms_min: int = 100
    """The pause before the first repetition. Each further one is twice as long."""

    backoff_ms_max: int = 30_000
    """The longest pause between repetitions."""

    delay_ms: int = 0
    """How old a message is at least when it is delivered."""

    timeout_ms: int = 30_000
    """How long the listeners may take for one call. No answer by then counts as none."""

    batch_messages_max: int = 1_000
    """Messages of one call, at most."""

    batch_bytes_max: int = 1024 * 1024
    """Values of one call in bytes, about; at least one message."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, (low, high) = getattr(self, field.name), _BOUNDS[field.name]
            if value is None and field.name == "attempts_max":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise InvalidInputError(
                    "a delivery option is out of range",
                    option=field.name,
                    value=value,
                    low=low,
                    high=high,
                )
        if self.backoff_ms_min > self.backoff_ms_max:
            raise InvalidInputError(
                "backoff_ms_min is above backoff_ms_max",
                backoff_ms_min=self.backoff_ms_min,
                backoff_ms_max=self.backoff_ms_max,
            )


_BOUNDS = {
    "attempts_max": (1, 1_000_000),
    "backoff_ms_min": (1, 3_600_000),
    "backoff_ms_max": (1, 86_400_000),
    "delay_ms": (0, 30 * 86_400_000),
    "timeout_ms": (100, 3_600_000),
    "batch_messages_max": (1, 65_536),
    "batch_bytes_max": (1, 8 * 1024 * 1024),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Presence:
    """A subscriber that is there: where it listens, what it wants, and how."""

    address: Address
    topics: frozenset[str] | None = None
    """The topics wanted; None for all."""
    delivery: DeliveryOptions = DeliveryOptions()
    revision: int = 0
    """Differs whenever the presence was made anew, also with the same content. Set by the
    service; what is registered has 0."""

    def __post_init__(self) -> None:
        if self.topics is not None:
            if not self.topics:
                raise InvalidInputError("topics has at least one; None means all")
            for topic in self.topics:
                topic_bytes(topic)


@dataclasses.dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a subscriber is in a partition."""

    next: MessageID
    """The first ID that is not yet delivered. It need not be that of a message."""
    revision: int
    """What compare-and-set compares. Meaningless to everybody else."""


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker that is there."""

    name: str
    address: Address
    """Where it takes wake-ups."""
    region_host: str
    """The region server's host that it sits on, as HBase names it."""
    load: int = 0
    """How much it has to do, in a measure that all workers share."""


class SessionState(enum.Enum):
    """The state of the connection to the coordination service."""

    CONNECTED = "connected"

    SUSPENDED = "suspended"
    """The connection is cut. What was present still is, for a while: nobody knows better. Who
    acts by right of a claim pauses; nothing is dropped."""

    LOST = "lost"
    """The session is over: everything that was present by it is gone, and claims may be another's
    already. Registrations are made anew with the next session, claims are not."""


class Watch(Protocol):
    """A listener that is told of changes, until it is closed."""

    def close(self) -> None:
        """Tell it nothing more. A call that is under way may still end. Never raises."""


class Registration(Protocol):
    """Something that is present, and is made anew after its session was lost, until closed."""

    @property
    def failure(self) -> HQueueError | None:
        """Why it could not be made anew: it is gone for good. None while all is well."""

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
            on_failure: told if the registration can't be made anew after a session was lost:
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

        Changes that come together are told once. The listener is called by one thread, never
        twice at a time. While the session is suspended the last view stands; after that, and
        after it was lost, the view is read anew. A record that can't be read is left out, and
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
            CheckpointMovedError: it was changed or deleted by somebody else; whoever thinks that
                it is in charge of this checkpoint no longer is.
            StoreUnavailableError: with an outcome.
        """

    def seek(self, starts: Mapping[SubscriptionKey, MessageID]) -> None:
        """Set checkpoints, also back, of a subscriber that is not present: each only if it isn't,
        and all or none of as many as the service changes at once, which is at least 250.

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

        Never made anew after a lost session: who wants it back claims it again.
        """

    def release(self, partitions: Collection[PartitionKey]) -> None:
        """Give up claims of this session; others stay. What isn't there counts as done."""

    def list(self) -> Mapping[PartitionKey, str]:
        """Every claim: which worker has which partition."""

    def watch(self, listener: Callable[[Mapping[PartitionKey, str]], None]) -> Watch:
        """Tell a listener of the claims; as `SubscriptionPort.watch`."""


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
        clock of `hqueue.clock.SYSTEM_CLOCK.monotonic_ms`, nobody else can have what is present
        by this session: whoever acts by right of a claim looks at that clock before each act, for
        a process that stood still is not told of a lost session before it goes on.

        Raises:
            StoreUnavailableError: there is no connection now, or no answer came.
        """

    def close(self) -> None:
        """End the session: what is present by it disappears at once. Never raises."""
