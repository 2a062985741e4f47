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
        address: of its service.
        session: the client's name for this life of it.
        explicit: whether only `consume` moves the cursor.
        host: the IP address of the client that asked for it.
        principal: who asked for it, as `calling_principal`.
    """

    address: Address
    session: str
    explicit: bool
    host: str = ""
    principal: str | None = None

    @property
    def holder(self) -> str:
        """The principal that attaches the subscription; its address, if it proves none."""
        return self.principal if is_proven(self.principal) else self.host

    @property
    def session_key(self) -> SessionKey:
        """The client's session, which is its principal's alone."""
        return SessionKey(self.session, self.principal)


class Claimant(NamedTuple):
    """Who does something with a subscription.

    Args:
        name: the subscriber's name.
        principal: who it has proven to be, as `calling_principal`. What a principal creates is its
            own; what callers create that have proven nothing belongs to the principal of that name.
        check: raises a `NotAllowedError` if it may not do it with a subscription of this owner; of
            None: one that it creates.
    """

    name: str
    principal: str | None = None
    check: Callable[[str | None], object] = lambda owner: None


class SubscribedTopic(Window):
    """A topic that this hub owns, and the subscriptions to it that are attached. IDs as integers.

    What the topic has from `start` on is in memory; no message that comes has an ID below `end`.

    Args:
        owned: the topic.
        end: where it begins to be kept.
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
    """A subscription that a client has attached. At rest it is nothing but this. IDs as integers.

    Args:
        topic: its topic.
        subscriber: its name.
        delivery: where messages go.
        preferences: how it wants them.
        version: of its record.
        consumed: its cursor, as it is stored.
        owner: the principal that it belongs to.
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
        """Whether those must be stored, though the cursor may not have moved."""
        self.topic = topic
        self.subscriber = subscriber
        self.delivery = delivery
        self.preferences = preferences
        self.version = version
        self.consumed = self.stored = self.tried = consumed
        self.position = consumed + 1
        """What lies below was delivered, or dropped."""
        self.since = 0
        """Messages consumed since the cursor was stored."""
        self.looked = False
        """Whether it was asked, since this was attached, if there is anything before."""
        self.waiting: int | None = None
        """Messages from `position` on; None if they are not counted."""
        self.outstanding: collections.deque[int] | None = None
        """Delivered, and not consumed: where only `consume` moves the cursor."""
        self.tries = UNTRIED
        """Of the call that comes next."""
        self.queued = False
        """Whether its turn comes, or a pause ends, without anybody's doing."""
        self.running = False
        self.ended: asyncio.Future[None] | None = None
        """Is set when the call under way has ended."""
        self.left = False
        """Whether it is detached: no call begins any more."""
        self.over = False
        """Whether the answer of a call under way comes too late."""
        self.holder = ""
        """Who attached it, as `Delivery.holder`."""

    @property
    def key(self) -> tuple[str, str]:
        """The topic's and the subscriber's names."""
        return self.topic.owned.name, self.subscriber

    @property
    def at_end(self) -> bool:
        """Whether it was given all that its topic has."""
        return self.position >= self.topic.end

    @property
    def interval(self) -> int:
        """The cursor is stored after this many messages."""
        return self.preferences.consume_interval or CONSUME_INTERVAL

    @property
    def room(self) -> int:
        """So many more messages may be delivered now."""
        window = min(self.preferences.delivery_window or WINDOW, WINDOW_MAX)
        return window - len(self.outstanding or ())

    @property
    def dirty(self) -> bool:
        """Whether its cursor must be stored."""
        return self.consumed > self.stored or self.must_store

    def repeat(self, tries: Tries) -> None:
        """Make the call once more that these were tries of, unless it need not be by now."""
        is_ahead = tries.end is not None and tries.end > self.position
        self.tries = tries if is_ahead else tries.passed()

    def went_on(self, end: int, tries: Tries) -> None:
        """Note that nothing else lies below `end` for the subscriber, and what comes next."""
        self._advance(0, end)
        self.repeat(tries)

    def delivered(self, ids: Sequence[int], end: int) -> None:
        """Note that the subscriber has these messages, and that nothing else lies below `end` for
        it.
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
        """These messages need not be delivered: they were dropped, or are dead letters."""
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
        if message_id >= self.position:  # It needs not get what lies between.
            self.position, self.waiting = message_id + 1, None
            self.tries = self.tries.passed()
        if message_id > self.consumed:
            self._move(message_id, max(1, count))

    def set_delivery(self, delivery: Delivery) -> None:
        """Deliver there from now on."""
        if self.delivery.explicit and not delivery.explicit and self.outstanding:
            # What it has is done with by this, as if it had come so.
            last, count = self.outstanding[-1], len(self.outstanding)
            self.outstanding = None
            self._move(last, count)
        self.delivery = delivery

    def _move(self, message_id: int, count: int) -> None:
        self.consumed = max(self.consumed, message_id)
        self.since += count
