"""Repeats measurements at a small share of a thread's time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hqueue_workers.node.runtime import Runtime

__all__ = ["measure_again_and_again"]

SHARE_OF_TIME = 0.05
"""What takes long is measured less often."""


async def measure_again_and_again(
    runtime: Runtime, every_ms: float, measure: Callable[[], Awaitable[None]]
) -> None:
    """Repeat a measurement, until cancelled.

    Args:
        runtime: the runtime.
        every_ms: the pause between two measurements; longer if they would otherwise take more than
            `SHARE_OF_TIME`.
        measure: measures once.
    """
    while True:
        began_ms = runtime.clock.monotonic_ms()
        await measure()
        took_ms = runtime.clock.monotonic_ms() - began_ms
        await runtime.sleep_ms(max(every_ms, took_ms / SHARE_OF_TIME))
