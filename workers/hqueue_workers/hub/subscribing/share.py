"""Bounds how many of the calls to subscribers one client's host may have: never all of them."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

from hqueue_workers.hub.subscribing.subscription_session import SubscriptionSession

__all__ = ["Share"]


class Share:
    """A bounded number of calls at a time, each made for a client at some host. The bound on the
    calls for one host depends on how many are free. Calls that wait take turns, one host after
    another.

    Args:
        calls_max: the most calls at a time.
        ahead: how many calls one host may have for each call that is free.
    """

    def __init__(self, calls_max: int, ahead: int) -> None:
        self._free = calls_max
        self._ahead = ahead
        self._calls: Counter[str] = Counter()
        """Under way, for each host."""
        self._waiting: OrderedDict[str, deque[SubscriptionSession]] = OrderedDict()
        """For each host; that whose turn was last is the last."""

    @property
    def hosts(self) -> int:
        """The number of hosts with calls under way."""
        return len(self._calls)

    def has_room(self, host: str) -> bool:
        """Return whether one more call may be made for a host."""
        calls = self._calls[host]
        return self._free > 0 and (not calls or calls < self._ahead * self._free)

    def take(self, host: str) -> None:
        """Count a call that is made."""
        self._free -= 1
        self._calls[host] += 1

    def give_back(self, host: str) -> None:
        """Count a call that has ended."""
        self._free += 1
        self._calls[host] -= 1
        if not self._calls[host]:
            del self._calls[host]

    def wait(self, subscription: SubscriptionSession) -> None:
        """Make a subscription wait until `next` returns it."""
        self._waiting.setdefault(subscription.delivery.host, deque()).append(subscription)

    def next(self) -> SubscriptionSession | None:
        """Return a waiting subscription for which there is room now, and let it wait no more."""
        host = next(filter(self.has_room, self._waiting), None)
        if host is None:
            return None
        self._waiting.move_to_end(host)
        subscription = self._waiting[host].popleft()
        if not self._waiting[host]:
            del self._waiting[host]
        return subscription
