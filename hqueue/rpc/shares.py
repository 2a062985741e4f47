"""Whose begun calls take how much of a port's memory, and whose give way to others'. No I/O."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["UNPROVEN_PART", "Share", "Shares"]

UNPROVEN_PART = 4
"""Callers that have proven no right to call have this part of the memory together, as long as
others need the rest: a handshake takes little of it, and not for long."""
LOOKED_AT_MAX = 64


class _Holder(Protocol):
    """A caller, as far as shares are concerned."""

    holder: str | None
    network: str
    held: int
    share: Share[Any] | None


_Caller = TypeVar("_Caller", bound=_Holder)


class Share(Generic[_Caller]):
    """The begun calls of one principal, or of one address of unauthenticated callers."""

    __slots__ = ("begun", "bytes", "group", "key")

    def __init__(self, group: _Group[_Caller], key: str) -> None:
        self.group = group
        self.key = key
        self.begun: OrderedDict[_Caller, None] = OrderedDict()
        """In the order in which they have begun."""
        self.bytes = 0


class _Group(Generic[_Caller]):
    """Principals; or addresses. Finds the largest share among however many there are."""

    def __init__(self) -> None:
        self.bytes = 0
        self._shares: dict[str, Share[_Caller]] = {}
        self._by_size: dict[int, OrderedDict[Share[_Caller], None]] = {}
        """By how many bits their bytes have as a number."""

    def share(self, key: str) -> Share[_Caller]:
        found = self._shares.get(key)
        if found is None:
            found = self._shares[key] = Share(self, key)
            self._by_size.setdefault(0, OrderedDict())[found] = None
        return found

    def resize(self, share: Share[_Caller], by: int) -> None:
        self.bytes += by
        before = share.bytes.bit_length()
        share.bytes += by
        after = share.bytes.bit_length()
        if after != before:
            self._leave(share, before)
            self._by_size.setdefault(after, OrderedDict())[share] = None

    def drop_if_unused(self, share: Share[_Caller]) -> None:
        if not share.begun:
            self._leave(share, share.bytes.bit_length())
            del self._shares[share.key]

    def largest(self) -> Share[_Caller] | None:
        """The largest share; one of more than half of its size, if many are."""
        if not self._by_size:
            return None
        large = self._by_size[max(self._by_size)]
        return max(itertools.islice(large, LOOKED_AT_MAX), key=lambda share: share.bytes)

    def _leave(self, share: Share[_Caller], size: int) -> None:
        among = self._by_size[size]
        del among[share]
        if not among:
            del self._by_size[size]


class Shares(Generic[_Caller]):
    """The begun calls of a port. Who holds most gives way, so that a principal that holds less than
    an equal share of the memory loses no call to others.

    Args:
        bytes_max: the memory.
    """

    def __init__(self, bytes_max: int) -> None:
        self._unproven_bytes_max = bytes_max // UNPROVEN_PART
        self._unproven: _Group[_Caller] = _Group()
        """By address."""
        self._principals: _Group[_Caller] = _Group()

    def begin(self, caller: _Caller) -> None:
        """A call has begun, or the reading of an answer; nothing is held for it yet."""
        if caller.holder is None:
            share = self._unproven.share(caller.network)
        else:
            share = self._principals.share(caller.holder)
        share.begun[caller] = None
        caller.share = share

    def hold(self, caller: _Caller, by: int) -> None:
        """This many more bytes are held for a caller, or fewer."""
        if caller.share is not None:
            caller.share.group.resize(caller.share, by)

    def end(self, caller: _Caller) -> None:
        """It is over, and nothing is held for it."""
        share, caller.share = caller.share, None
        if share is not None:
            del share.begun[caller]
            share.group.drop_if_unused(share)

    def first_to_go(self) -> _Caller | None:
        """Whose call ends so that there is memory for others: the oldest one of the address that
        holds most, while all unauthenticated callers hold more than their part; else of the
        principal that holds most. None if nothing has begun.
        """
        groups = [self._principals, self._unproven]
        if self._unproven.bytes > self._unproven_bytes_max:
            groups.reverse()
        for group in groups:
            share = group.largest()
            if share is not None:
                return next(iter(share.begun))
        return None
