"""When a worker may act: its session, checked by time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from hqueue.metadata import Coordination, SessionState
from hqueue_workers.node.lease import Lease
from tests.support.worker_doubles import Session, SteppedRuntime, settle

TIMEOUT_MS = 10_000.0

Scene = Callable[[Lease, Session, SteppedRuntime, list[str]], Awaitable[None]]


def play(scene: Scene) -> None:
    async def run() -> None:
        runtime, lost = SteppedRuntime(), cast("list[str]", [])
        session = Session(runtime.stepped, TIMEOUT_MS)
        lease = Lease(cast(Coordination, session), runtime, lambda: lost.append("lost"))
        runtime.start(lease.run())
        await settle()
        await scene(lease, session, runtime, lost)
        await runtime.close()

    asyncio.run(run())


def test_it_holds_for_as_long_as_the_service_keeps_the_session() -> None:
    async def scene(lease: Lease, _s: Session, runtime: SteppedRuntime, _l: Any) -> None:
        assert lease.holds
        runtime.stepped.now_ms += TIMEOUT_MS - 1
        assert lease.holds
        # A process that stood still looks at the clock first, whatever it heard before.
        runtime.stepped.now_ms += 1
        assert not lease.holds

    play(scene)


def test_after_standing_still_it_waits_for_a_confirmation() -> None:
    async def scene(lease: Lease, session: Session, runtime: SteppedRuntime, lost: Any) -> None:
        runtime.stepped.now_ms += TIMEOUT_MS + 1
        waiting = asyncio.ensure_future(lease.wait())
        await settle()
        assert not waiting.done()
        session.tell(SessionState.CONNECTED)
        await settle()
        assert waiting.done()
        assert lease.holds
        assert lost == []

    play(scene)


def test_a_suspended_session_waits_and_drops_nothing() -> None:
    async def scene(lease: Lease, session: Session, runtime: SteppedRuntime, lost: Any) -> None:
        session.tell(SessionState.SUSPENDED)
        await settle()
        assert not lease.holds
        waiting = asyncio.ensure_future(lease.wait())
        session.answers = False
        session.tell(SessionState.CONNECTED)
        await settle()
        # Connected is not confirmed.
        assert not waiting.done()
        session.answers = True
        session.tell(SessionState.CONNECTED)
        await settle()
        assert waiting.done()
        assert lost == []

    play(scene)


def test_a_lost_session_is_told_once() -> None:
    async def scene(lease: Lease, session: Session, _r: SteppedRuntime, lost: Any) -> None:
        session.tell(SessionState.LOST)
        await settle()
        assert lost == ["lost"]
        assert not lease.holds
        session.tell(SessionState.CONNECTED)
        await settle()
        assert lease.holds
        assert lost == ["lost"]

    play(scene)
