"""Says that a server of HBase, or a gateway, does not answer, and that it answers again: once each
for a process, however many of its clients and threads meet it.
"""

from __future__ import annotations

from hqueue.runtime.logs import Log
from hqueue.runtime.seldom import FaultLog
from hqueue.runtime.sockets import NO_DESCRIPTORS, lacks_descriptors
from hqueue.settings.addresses import Address, GatewayAddress

__all__ = ["answered", "silence_text", "unanswered"]

logger = Log(__name__)

QUIET_MS = 1_000.0
"""It answers again when nobody was without an answer for this long: of several requests to a server
that is slow, some are answered meanwhile."""

PATIENCE_MS = 2_000.0
"""A connection that was cut, and can be opened again, is not a line."""

_faults = FaultLog(logger, quiet_ms=QUIET_MS, patience_ms=PATIENCE_MS)


def unanswered(address: Address | GatewayAddress, error: BaseException) -> None:
    """A request had no answer, or could not be sent."""
    reason = f"{type(error).__name__}: {error}"
    _faults.met(str(address), "HBase does not answer at %s: %s", address, reason)


def silence_text(error: BaseException, whose: str, *, sent: bool) -> str:
    """What an error says of a request that had no answer.

    Args:
        error: why.
        whose: what was asked: ``server``.
        sent: whether it was sent.
    """
    if sent:
        return f"the {whose} gave no answer"
    return NO_DESCRIPTORS if lacks_descriptors(error) else f"the {whose} can't be reached"


def answered(address: Address | GatewayAddress) -> None:
    """A request was answered."""
    _faults.over(str(address), "HBase answers again at %s", address)
