"""Limits what each principal may ask of a port per second, and hold at a hub at a time."""

from __future__ import annotations

import collections
import math
import weakref
from typing import Any, NamedTuple

from hqueue.errors import BufferFullError, SettingsError
from hqueue.net.audit import Audit
from hqueue.net.peers import host_of, network_of
from hqueue.net.principals import ANONYMOUS, is_proven
from hqueue.runtime.clock import SYSTEM_CLOCK, Clock
from hqueue.runtime.token_bucket import TokenBucket
from hqueue.settings.names import EVERYBODY, is_among, is_name, with_closest
from hqueue.settings.numbers import whole_number

__all__ = ["UNLIMITED", "Account", "OverQuota", "PortQuotas", "Quota", "QuotaRules", "Quotas"]

SECOND_MS = 1_000.0
DEBT_MS_MAX = 60_000.0
"""A call is admitted when the caller has no debt, however large the call and its answer are. No
caller pays for them longer than this."""
SPREAD_MS_MAX = 5_000.0
"""Callers that share a quota are asked to come back one after another, as far as this."""
ACCOUNTS_KEPT = 16_384
"""Accounts of callers without a connection, of those that connected last."""
NO_LIMIT = "none"


class Quota(NamedTuple):
    """Holds the limits of a caller; None for no limit."""

    calls: int | None = None
    """Calls a second, at each port."""
    bytes_in: int | None = None
    """Bytes of calls a second, at each port."""
    bytes_out: int | None = None
    """Bytes of answers a second, at each port."""
    creations: int | None = None
    """Topics that it may create in a queue per hour, and subscriptions, at each hub."""
    subscriptions: int | None = None
    """Subscriptions that it may have attached at a time, in each queue of a hub."""
    sessions: int | None = None
    """Sessions that it may have at a time, in each queue of a hub."""


UNLIMITED = Quota()

_BOUNDS = {
    "calls": (1, 1_000_000_000),
    "bytes_in": (1_024, 2**40),
    "bytes_out": (1_024, 2**40),
    "creations": (1, 1_000_000_000),
    "subscriptions": (1, 10_000_000),
    "sessions": (1, 10_000_000),
}


class QuotaRules:
    """Says which quota a principal has: ``principal:limit=number``, with spaces between the limits
    of a rule, and commas between rules. The first rule that matches a principal and has a limit
    sets that limit.

    Args:
        text: the rules.

    Raises:
        SettingsError: these are not rules; ``wrong`` is the part that is wrong.
    """

    def __init__(self, text: str = "") -> None:
        self._rules: list[tuple[str, dict[str, int | None]]] = []
        for rule in filter(None, map(str.strip, text.split(","))):
            principal, _, limits = map(str.strip, rule.partition(":"))
            if not (principal == EVERYBODY or is_name(principal.removesuffix(EVERYBODY))):
                raise _wrong(text, rule, "a rule begins with a principal and a colon")
            if not limits:
                raise _wrong(text, rule, "the rule has no limit")
            found: dict[str, int | None] = {}
            for limit in limits.split():
                name, number = _limit(text, limit)
                if name in found:
                    raise _wrong(text, limit, "the rule has this limit twice")
                found[name] = number
            self._rules.append((principal, found))

    def __bool__(self) -> bool:
        return bool(self._rules)

    def of(self, principal: str | None) -> Quota:
        """The quota of a principal; None for callers that prove nothing."""
        quota: dict[str, int | None] = {}
        for of, limits in self._rules:
            if is_among([of], ANONYMOUS if principal is None else principal):
                quota = limits | quota
        return Quota(**quota)


class OverQuota(NamedTuple):
    """Says why a call is not served now."""

    limit: str
    """Which limit of the caller's quota is exceeded."""
    retry_after_ms: int
    """When the caller may come back."""


class Account:
    """Counts what a caller has used of its quota. All of its connections share it.

    Args:
        quota: its quota.
        principal: whose it is; None if nobody has proven anything.
        clock: where time comes from.
    """

    __slots__ = ("__weakref__", "_buckets", "_clock", "_turn_ms", "principal")

    def __init__(self, quota: Quota, principal: str | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.principal = principal
        self._clock = clock
        limits = {name: getattr(quota, name) for name in ("calls", "bytes_in", "bytes_out")}
        self._buckets = {
            name: TokenBucket(limit, SECOND_MS, DEBT_MS_MAX)
            for name, limit in limits.items()
            if limit is not None
        }
        self._turn_ms = -math.inf
        """When the next one that is refused may come back."""

    def admit(self, size: int) -> OverQuota | None:
        """Count a call of this many bytes; None if it is within the quota. Else it is not counted,
        for it will come again: those that are refused together come back one after another.
        """
        now_ms = self._clock.monotonic_ms()
        waits = {name: bucket.wait_ms(now_ms) for name, bucket in self._buckets.items()}
        limit = max(waits, key=waits.__getitem__, default="")
        counts = {"calls": 1, "bytes_in": size}
        if not limit or not waits[limit]:
            for name, count in counts.items():
                self._take(name, count, now_ms)
            return None
        turn_ms = max(self._turn_ms, now_ms + waits[limit])
        turn_ms = min(turn_ms, now_ms + max(waits[limit], SPREAD_MS_MAX))
        self._turn_ms = turn_ms + max(
            (
                count * self._buckets[name].interval_ms
                for name, count in counts.items()
                if name in self._buckets
            ),
            default=0.0,
        )
        return OverQuota(limit, max(1, math.ceil(turn_ms - now_ms)))

    def received(self, size: int) -> None:
        """Count the received bytes of a call that will never be complete."""
        self._take("bytes_in", size, self._clock.monotonic_ms())

    def sent(self, size: int) -> None:
        """Count bytes of an answer."""
        self._take("bytes_out", size, self._clock.monotonic_ms())

    def _take(self, name: str, count: int, now_ms: float) -> None:
        bucket = self._buckets.get(name)
        if bucket is not None:
            bucket.take(now_ms, count)


class PortQuotas:
    """The quotas of a port's callers: of principals where callers prove who they are, and else of
    addresses, by the rules for ``anonymous``. Used by the thread that serves the port.

    Args:
        port: what the port is called.
        rules: which quota a caller has.
        clock: where time comes from.
        kept_max: as `ACCOUNTS_KEPT`.
    """

    def __init__(
        self,
        port: str,
        rules: QuotaRules,
        clock: Clock = SYSTEM_CLOCK,
        kept_max: int = ACCOUNTS_KEPT,
    ) -> None:
        self.port = port
        self.refused: collections.Counter[str] = collections.Counter()
        """How many calls were refused, by the limit."""
        self._rules = rules
        self._clock = clock
        self._kept_max = kept_max
        self._audit = Audit()
        # An account lives for as long as a connection has it, and then among those kept: so
        # nobody is rid of a debt by connecting again.
        self._accounts: weakref.WeakValueDictionary[str, Account] = weakref.WeakValueDictionary()
        self._kept: collections.OrderedDict[str, Account] = collections.OrderedDict()

    def account(self, principal: str | None, peer: Any) -> Account:
        """The account of a caller that has connected.

        Args:
            principal: who it has proven to be; None if nothing is proven.
            peer: its address.
        """
        # No principal's name has a slash.
        key = principal if is_proven(principal) else f"/{network_of(host_of(peer))}"
        found = self._accounts.get(key)
        if found is None:
            quota = self._rules.of(principal)
            found = self._accounts[key] = Account(quota, principal, self._clock)
        self._kept[key] = found
        self._kept.move_to_end(key)
        if len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)
        return found

    def quota(self, principal: str | None) -> Quota:
        """The quota of a principal; None for callers that prove nothing."""
        return self._rules.of(principal)

    def check_held(self, limit: str, held: int, principal: str | None, host: str) -> None:
        """Check that a caller may hold one more.

        Args:
            limit: the name of the limit.
            held: how many the caller holds.
            principal: the caller's proven principal; None if nothing is proven.
            host: the caller's IP address.

        Raises:
            BufferFullError: it holds as many as it may hold.
        """
        held_max: int | None = getattr(self.quota(principal), limit)
        if held_max is not None and held >= held_max:
            self.refuse(OverQuota(limit, 0), principal, (host, 0))
            raise BufferFullError(
                f"the caller has as many {limit} as its quota allows: end one, or try again later",
                limit=limit,
                held=held,
                held_max=held_max,
            )

    def refuse(self, over: OverQuota, principal: str | None, peer: Any) -> None:
        """Count a refusal, and write it into the audit."""
        self.refused[over.limit] += 1
        reason = "the caller is over its quota"
        on = {"port": self.port, "limit": over.limit}
        self._audit.refused_for_now("call", principal, host_of(peer), reason, **on)


class Quotas:
    """The quotas of the callers of a process.

    Args:
        rules: which quota a caller has.
    """

    def __init__(self, rules: QuotaRules) -> None:
        self.rules = rules
        self.ports: list[PortQuotas] = []
        """Those of each port that has any."""

    def port(self, name: str) -> PortQuotas | None:
        """Those of a port; None if nobody has one."""
        if not self.rules:
            return None
        made = PortQuotas(name, self.rules)
        self.ports.append(made)
        return made


def _limit(text: str, limit: str) -> tuple[str, int | None]:
    name, _, number = limit.partition("=")
    if name not in _BOUNDS:
        raise with_closest(_wrong(text, limit, "there is no such limit"), name, _BOUNDS)
    low, high = _BOUNDS[name]
    if number == NO_LIMIT:
        return name, None
    read = whole_number(number)
    if read is None or not low <= read <= high:
        raise _wrong(text, limit, f"a limit is a whole number from {low} to {high}, or {NO_LIMIT}")
    return name, read


def _wrong(text: str, wrong: str, reason: str) -> SettingsError:
    return SettingsError(
        "quotas must be principal:limit=number, with spaces between limits and commas between "
        "rules",
        quotas=text,
        wrong=wrong,
        reason=reason,
    )
