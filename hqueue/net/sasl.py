"""Implements SASL's mechanism GSSAPI (RFC 4752) for clients: answers the server's messages.

The layers have HBase's names: ``authentication`` alone; ``integrity``, in which nobody can change
the data; ``privacy``, in which nobody can read it either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hqueue.net.refusals import RefusedError
from hqueue.settings.security import AUTHENTICATION, INTEGRITY, PRIVACY

__all__ = ["Gssapi"]

_BITS = {AUTHENTICATION: 1, INTEGRITY: 2, PRIVACY: 4}

TAKEN_BYTES_MAX = 0xFFFFFF
"""What one frame to this client may have in it. HBase does not keep to it."""


class SecurityContext(Protocol):
    """What `hqueue.net.gssapi.Context` has."""

    complete: bool

    def step(self, token: bytes) -> bytes: ...

    def wrap(self, data: bytes, *, encrypted: bool) -> bytes: ...

    def unwrap(self, token: bytes | bytearray) -> tuple[bytes, bool]: ...


class Gssapi:
    """Conducts one exchange, and wraps data in the security layer that results.

    Args:
        context: with the server. Its first step was made.
        protections: the layers that are good enough, the best one first.
    """

    def __init__(self, context: SecurityContext, protections: Sequence[str]) -> None:
        self._context = context
        self._protections = protections
        self.protection: str | None = None
        """The layer that was chosen; None before. Then the exchange is over."""

    def answer(self, challenge: bytes) -> bytes:
        """Answer the server's message. The answer may be empty.

        Raises:
            RefusedError: the server offers no layer that is good enough.
            OSError: what the server sent is not good.
            ValueError: what the server sent is malformed.
        """
        if not self._context.complete:
            return self._context.step(challenge)
        offer, _ = self._context.unwrap(challenge)
        if len(offer) != 4:
            raise ValueError("the server's offer of security layers is malformed")
        offered = [name for name, bit in _BITS.items() if offer[0] & bit]
        chosen = next((name for name in self._protections if name in offered), None)
        if chosen is None:
            raise RefusedError(
                "the server offers no protection that hbase_protection allows: compare it with the "
                "server's hbase.rpc.protection",
                offered=offered,
                allowed=list(self._protections),
            )
        self.protection = chosen
        taken = 0 if chosen == AUTHENTICATION else TAKEN_BYTES_MAX
        reply = bytes((_BITS[chosen],)) + taken.to_bytes(3, "big")
        return self._context.wrap(reply, encrypted=False)

    @property
    def wraps(self) -> bool:
        """Whether data after the exchange goes in frames."""
        return self.protection != AUTHENTICATION

    def wrap(self, data: bytes) -> bytes:
        """Wrap data into a token."""
        return self._context.wrap(data, encrypted=self.protection == PRIVACY)

    def unwrap(self, token: bytearray) -> bytes:
        """Return the data in a token.

        Raises:
            OSError: it was changed on its way, or is not encrypted where it must be.
        """
        data, was_encrypted = self._context.unwrap(token)
        if self.protection == PRIVACY and not was_encrypted:
            raise ConnectionError("the server sent a frame that is not encrypted")
        return data
