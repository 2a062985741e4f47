"""How many of the calls to subscribers one client's host may have: never all of them."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

from hqueue_workers.hub.subscribing.subscription_session import SubscriptionSession

__all__ = ["Share"]


class Share:
    """This many calls at a time, each made for a client at some host. Those for one host are
    bounded by what is left for others; those that wait take turns, one host after another.

    Args:
        calls_max: calls at a time.
        ahead: one host's are at most this many for each that is free.
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
        """For how many hosts calls are under way."""
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
        """Have one wait until `next` gives it."""
        self._waiting.setdefault(subscription.delivery.host, deque()).append(subscription)

    def next(self) -> SubscriptionSession | None:
        """One that waited and for which there is room now, and waits no more."""
        host = next(filter(self.has_room, self._waiting), None)
        if host is None:
            return None
        self._waiting.move_to_end(host)
        subscription = self._waiting[host].popleft()
        if not self._waiting[host]:
            del self._waiting[host]
        return subscription
