"""A subscription session: a subscription that a client has attached, and its topic."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hqueue import Address
from hqueue.metadata.managers import SubscriptionPreferences
from hqueue.metadata.ports import Version
from hqueue.metadata.unanswered_calls import UnansweredCalls
from hqueue.net.principals import is_proven
from hqueue_workers.delivery.segment import Window
from hqueue_workers.delivery.tries import UNTRIED, Tries
from hqueue_workers.hub.subscribing.client_sessions import SessionKey
from hqueue_workers.hub.writing.owned_topic import OwnedTopic

__all__ = ["Claimant", "Delivery", "SubscribedTopic", "SubscriptionSession"]

WINDOW = 1_000
WINDOW_MAX = 10_000
CONSUME_INTERVAL = 100


class Delivery(NamedTuple):
    """Where a subscriber's messages go.

    Args:
        address: the address of the subscriber's service.
        session: the ID of the client's session.
        explicit: whether only `consume` moves the cursor.
        host: the IP address of the client that subscribed.
        principal: the principal that subscribed, as `calling_principal` gives it.
    """

    address: Address
    session: str
    explicit: bool
    host: str = ""
    principal: str | None = None

    @property
    def holder(self) -> str:
        """The principal that attaches the subscription; the client's address if it proves none."""
        return self.principal if is_proven(self.principal) else self.host

    @property
    def session_key(self) -> SessionKey:
        """The client's session, which belongs to its principal alone."""
        return SessionKey(self.session, self.principal)


class Claimant(NamedTuple):
    """The caller of an operation on a subscription.

    Args:
        name: the subscriber's name.
        principal: the principal that it has proven to be, as `calling_principal` gives it. A
            principal owns what it creates. What a caller without a proven principal creates belongs
            to the principal of the subscriber's name.
        check: raises a `NotAllowedError` if the caller may not do this with a subscription of this
            owner; the owner is None for a subscription that the caller creates.
    """

    name: str
    principal: str | None = None
    check: Callable[[str | None], object] = lambda owner: None


class SubscribedTopic(Window):
    """A topic that this hub owns, with its attached subscriptions. IDs are integers.

    The topic's messages from `start` on are in memory. New messages have IDs of at least `end`.

    Args:
        owned: the topic.
        end: the ID from which messages are kept in memory.
    """

    __slots__ = ("left", "owned", "subscriptions", "users")

    def __init__(self, owned: OwnedTopic, end: int) -> None:
        super().__init__(end)
        self.owned = owned
        self.subscriptions: dict[str, SubscriptionSession] = {}
        self.users = 0
        """Calls that are about to attach or detach something."""
        self.left = False


class SubscriptionSession:
    """A subscription that a client has attached. A subscription without waiting messages has no
    other object. IDs are integers.

    Args:
        topic: the topic.
        subscriber: the subscriber's name.
        delivery: where messages go.
        preferences: the preferences of the subscription.
        version: the version of its record.
        consumed: its cursor, as stored.
        owner: the principal that owns it.
        suspected: the calls without an answer that are stored with it.
    """

    __slots__ = (
        "consumed", "delivery", "ended", "holder", "left", "looked", "must_store", "outstanding",
        "over", "owner", "position", "preferences", "queued", "running", "since", "stored",
        "subscriber", "suspected", "topic", "tried", "tries", "version", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        topic: SubscribedTopic,
        subscriber: str,
        delivery: Delivery,
        *,
        preferences: SubscriptionPreferences,
        version: Version,
        consumed: int,
        owner: str,
        suspected: UnansweredCalls | None = None,
    ) -> None:
        self.owner = owner
        self.suspected = suspected
        """The calls that had no answer: one of their messages may be the cause."""
        self.must_store = False
        """Whether these calls must be stored even if the cursor has not moved."""
        self.topic = topic
        self.subscriber = subscriber
        self.delivery = delivery
        self.preferences = preferences
        self.version = version
        self.consumed = self.stored = self.tried = consumed
        self.position = consumed + 1
        """All messages below this ID were delivered or dropped."""
        self.since = 0
        """Messages consumed since the cursor was stored."""
        self.looked = False
        """Whether the hub has checked, since this was attached, for older messages in the log."""
        self.waiting: int | None = None
        """Messages from `position` on; None if they are not counted."""
        self.outstanding: collections.deque[int] | None = None
        """Messages delivered and not yet consumed, if only `consume` moves the cursor."""
        self.tries = UNTRIED
        """The earlier tries of the next call."""
        self.queued = False
        """Whether it waits for its turn or for the end of a pause."""
        self.running = False
        self.ended: asyncio.Future[None] | None = None
        """Set when the call under way has ended."""
        self.left = False
        """Whether it is detached, so that no more calls begin."""
        self.over = False
        """Whether the answer of a call under way would come too late."""
        self.holder = ""
        """Who attached it, as `Delivery.holder`."""

    @property
    def key(self) -> tuple[str, str]:
        """The topic's and the subscriber's names."""
        return self.topic.owned.name, self.subscriber

    @property
    def at_end(self) -> bool:
        """Whether it has received all messages of its topic."""
        return self.position >= self.topic.end

    @property
    def interval(self) -> int:
        """The number of messages after which the cursor is stored."""
        return self.preferences.consume_interval or CONSUME_INTERVAL

    @property
    def room(self) -> int:
        """How many more messages may be delivered now."""
        window = min(self.preferences.delivery_window or WINDOW, WINDOW_MAX)
        return window - len(self.outstanding or ())

    @property
    def dirty(self) -> bool:
        """Whether its cursor must be stored."""
        return self.consumed > self.stored or self.must_store

    def repeat(self, tries: Tries) -> None:
        """Keep the tries of a call for its repetition, unless it need not be repeated by now."""
        is_ahead = tries.end is not None and tries.end > self.position
        self.tries = tries if is_ahead else tries.passed()

    def went_on(self, end: int, tries: Tries) -> None:
        """Note that nothing below `end` is left to deliver, and keep the tries of the next call."""
        self._advance(0, end)
        self.repeat(tries)

    def delivered(self, ids: Sequence[int], end: int) -> None:
        """Note that the subscriber got these messages, and that nothing below `end` is left to
        deliver.
        """
        self._advance(len(ids), end)
        if not ids:
            return
        if self.delivery.explicit:
            if self.outstanding is None:
                self.outstanding = collections.deque()
            self.outstanding.extend(each for each in ids if each > self.consumed)
        else:
            self._move(ids[-1], len(ids))

    def passed(self, ids: Sequence[int], end: int) -> None:
        """Note that these messages need not be delivered: they were dropped or are dead letters."""
        self._advance(len(ids), end)
        if ids and not self.outstanding:
            self._move(ids[-1], len(ids))

    def _advance(self, count: int, end: int) -> None:
        self.position = max(self.position, end)
        self.tries = self.tries.passed()
        if self.waiting is not None:
            self.waiting = max(0, self.waiting - count)

    def consume(self, message_id: int) -> None:
        """Note that the subscriber is done with this message, and all before it."""
        count = 0
        while self.outstanding and self.outstanding[0] <= message_id:
            self.outstanding.popleft()
            count += 1
        if message_id >= self.position:  # The messages between need not be delivered.
            self.position, self.waiting = message_id + 1, None
            self.tries = self.tries.passed()
        if message_id > self.consumed:
            self._move(message_id, max(1, count))

    def set_delivery(self, delivery: Delivery) -> None:
        """Deliver to another address or session, or in another mode, from now on."""
        if self.delivery.explicit and not delivery.explicit and self.outstanding:
            # Delivery alone moves the cursor now, so what the subscriber has counts as consumed.
            last, count = self.outstanding[-1], len(self.outstanding)
            self.outstanding = None
            self._move(last, count)
        self.delivery = delivery

    def _move(self, message_id: int, count: int) -> None:
        self.consumed = max(self.consumed, message_id)
        self.since += count
