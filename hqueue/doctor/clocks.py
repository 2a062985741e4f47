"""Judges the difference between a server's clock and this machine's."""

from __future__ import annotations

from hqueue.doctor.findings import Finding, ok, warning, wrong

__all__ = ["clock_finding"]

_ADVICE = "run NTP on both machines: `timedatectl` shows whether this one does"


def clock_finding(whose: str, ahead_ms: float, error_ms: float, skew_ms_max: int) -> Finding:
    """Judge a server's clock.

    Args:
        whose: the server.
        ahead_ms: how far its clock is ahead of this machine's.
        error_ms: the largest error of that measurement.
        skew_ms_max: the setting ``clock_skew_ms_max``.
    """
    side = "ahead of" if ahead_ms >= 0 else "behind"
    off_ms = max(0.0, abs(ahead_ms) - error_ms)
    found = f"the clock of {whose} is {abs(ahead_ms) / 1e3:.1f} s {side} this machine's"
    if off_ms > skew_ms_max:
        return wrong(
            "clock",
            f"{found}, which is more than clock_skew_ms_max: appends to such region servers are "
            "refused",
            _ADVICE,
        )
    if off_ms > skew_ms_max / 5:
        return warning("clock", found, _ADVICE)
    return ok("clock", f"the clock of {whose} agrees with this machine's")
