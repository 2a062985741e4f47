"""How far a server's clock may be off."""

from __future__ import annotations

from hqueue.doctor.findings import Finding, ok, warning, wrong

__all__ = ["clock_finding"]

_ADVICE = "have both set by NTP: `timedatectl` shows whether this one is"


def clock_finding(whose: str, ahead_ms: float, error_ms: float, skew_ms_max: int) -> Finding:
    """A finding about a clock that was measured.

    Args:
        whose: the server.
        ahead_ms: how far it is ahead of this machine's.
        error_ms: how wrong that may be.
        skew_ms_max: the setting ``clock_skew_ms_max``.
    """
    side = "ahead of" if ahead_ms >= 0 else "behind"
    off_ms = max(0.0, abs(ahead_ms) - error_ms)
    found = f"the clock of {whose} is {abs(ahead_ms) / 1e3:.1f} s {side} this machine's"
    if off_ms > skew_ms_max:
        return wrong(
            "clock",
            f"{found}, which is more than clock_skew_ms_max: appends are refused where region "
            "servers differ so",
            _ADVICE,
        )
    if off_ms > skew_ms_max / 5:
        return warning("clock", found, _ADVICE)
    return ok("clock", f"the clock of {whose} agrees with this machine's")
