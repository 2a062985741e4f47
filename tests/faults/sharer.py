"""Consumers of share groups in one process: ``python -m tests.faults.sharer SPECIFICATION``."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import random
import sys
import threading
import time
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import hqueue
import hqueue.aio
from hqueue import Client, HQueueError, ShareConsumer
from hqueue.typing import AcquiredMessage

from .reader import noted
from .record_files import now_s
from .share_history import (
    ACKNOWLEDGE,
    DELIVERIES_MAX,
    GROUPS,
    KEYED,
    LATER,
    LOCK_S,
    LOOSE,
    REASON,
    REJECT,
    RELEASE,
    RENEW,
    ShareRecorder,
)
from .share_log import last_ids, unfinished
from .specification import Specification

__all__ = ["STYLES"]

STYLES = ("acquiring", "traversing", "looping")
"""An ``acquiring`` one polls, a ``traversing`` one iterates, a ``looping`` one polls in an event
loop. Each has a consumer in each group."""

WAITING = 0.5
"""What waits in a consumer to be handed out may be so old when it is, in parts of the lock."""

FATES = {
    ACKNOWLEDGE: 0.77,
    RELEASE: 0.06,
    LATER: 0.04,
    REJECT: 0.03,
    RENEW: 0.04,
    "acknowledge too late": 0.02,
    "forget": 0.04,
}
"""What becomes of a message, and how often."""

POLL_MS = 200.0
MESSAGES_MAX = 30
PREFETCH = 20
COMMITS = 0.2
CANCELS = 0.15
CANCELLED_S = (0.0, 0.005, 0.1)
"""When a call that is cancelled is."""
STAYS_S = (5.0, 30.0)
WORK_S = 0.02
LATER_S = (0.2, 3.0)
PAUSE_S = 0.5
LOOK_EVERY_S = 1.0

Answered = TypeVar("Answered")
AnyConsumer = ShareConsumer | hqueue.aio.ShareConsumer


class _Process:
    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        path = specification.folder / f"{specification.name}.sharer.jsonl"
        self._recorder = ShareRecorder(path)

    def run(self) -> None:
        with (
            hqueue.connect(self._specification.client_settings()) as client,
            ThreadPoolExecutor(len(GROUPS)) as pool,
        ):
            end = _End(self._specification, client)
            share = self._share_in_loop if self._specification.style == "looping" else self._share
            for ended in [pool.submit(share, client, group, end) for group in GROUPS]:
                ended.result()

    def _options(self, group: str) -> dict[str, Any]:
        return {
            "group": group,
            "lock_ms": int(LOCK_S * 1_000),
            "deliveries_max": DELIVERIES_MAX,
            "auto_acknowledge": False,
            "ordered_by_key": group == KEYED,
        }

    def _chance(self, group: str) -> random.Random:
        return random.Random(f"{self._specification.seed} {group}")

    def _share(self, client: Client, group: str, end: _End) -> None:
        chance = self._chance(group)
        traversing = self._specification.style == "traversing"
        over = False
        while not over:  # Ends when all is done; the run ends this process if it never is.
            try:
                consumer = ShareConsumer(
                    self._specification.shares_queue, client=client, **self._options(group)
                )
            except HQueueError as exc:
                _pause_after(exc)
                continue
            program = _Program(
                self._specification, self._recorder, consumer, chance, fresh=not traversing
            )
            try:
                over = _Sharing(consumer, program, traversing=traversing).run(end)
            finally:
                self._recorder.leaving(consumer.consumer_id)
                with _told():
                    consumer.close()

    def _share_in_loop(self, client: Client, group: str, end: _End) -> None:
        asyncio.run(self._share_as_coroutine(client, group, end))

    async def _share_as_coroutine(self, client: Client, group: str, end: _End) -> None:
        chance = self._chance(group)
        over = False
        while not over:
            cancels = chance.random() < 0.5
            consumer = hqueue.aio.ShareConsumer(
                self._specification.shares_queue,
                client=hqueue.aio.Client(client),
                **self._options(group),
            )
            program = _Program(
                self._specification, self._recorder, consumer, chance, fresh=not cancels
            )
            try:
                over = await _SharingInLoop(consumer, program, cancels=cancels).run(end)
            finally:
                self._recorder.leaving(consumer.consumer_id)
                with _told():
                    await consumer.close()


class _Program:
    """What the program of a consumer says of its messages: in threads as in event loops.

    Args:
        specification: of the process.
        recorder: of the process.
        consumer: the consumer.
        chance: what chooses.
        fresh: whether what the consumer hands out was never waiting in it.
    """

    def __init__(
        self,
        specification: Specification,
        recorder: ShareRecorder,
        consumer: AnyConsumer,
        chance: random.Random,
        *,
        fresh: bool,
    ) -> None:
        self.chance = chance
        self._drained = specification.drained
        self._recorder = recorder
        self._consumer = consumer
        # Where keys are kept in order, a message waits for the one before it.
        waits = not fresh or consumer.group != LOOSE
        self._holds_s = LOCK_S * (1 - WAITING) if waits else LOCK_S
        self._kept: list[tuple[float, str, AcquiredMessage]] = []
        """What it will say: when, what, and the message."""

    def got(self, asked_s: float, messages: Sequence[AcquiredMessage]) -> None:
        """Write down that it has these, which it had asked for then."""
        self._recorder.handed(
            self._consumer.consumer_id,
            self._consumer.group,
            asked_s=asked_s,
            holds_s=self._holds_s,
            wall_ms=time.time_ns() // 1_000_000,
            messages=[(*noted(each), each.deliveries) for each in messages],
        )

    def answer(self, messages: Sequence[AcquiredMessage]) -> None:
        """Say of each what chance wants; when nothing more is put, that it is done."""
        drained = self._drained()
        for message in messages:
            (fate,) = self.chance.choices([*FATES], [*FATES.values()])
            if drained or fate in (ACKNOWLEDGE, RELEASE, LATER, REJECT):
                self._say(ACKNOWLEDGE if drained else fate, message)
            elif fate == RENEW:
                self._keep(0.4, RENEW, message)
            elif fate == "acknowledge too late":
                self._keep(1.3, ACKNOWLEDGE, message)

    def answer_kept(self) -> bool:
        """Say what is due of those that it kept; whether locks must be renewed at once."""
        now_s = time.monotonic()
        due = [each for each in self._kept if each[0] <= now_s]
        self._kept = [each for each in self._kept if each[0] > now_s]
        for _, kind, message in due:
            self._say(kind, message)
            if kind == RENEW:
                self._keep(0.8, ACKNOWLEDGE, message)
        return any(kind == RENEW for _, kind, _ in due)

    def committed(self, began_s: float) -> None:
        """Write down that a commit succeeded."""
        self._recorder.committed(self._consumer.consumer_id, began_s)

    def _keep(self, locks: float, kind: str, message: AcquiredMessage) -> None:
        self._kept.append((time.monotonic() + locks * LOCK_S, kind, message))

    def _say(self, kind: str, message: AcquiredMessage) -> None:
        place = message.partition, int(message.id)
        self._recorder.answering(self._consumer.consumer_id, kind, [place])
        if kind == ACKNOWLEDGE:
            self._consumer.acknowledge(message)
        elif kind == RELEASE:
            self._consumer.release(message)
        elif kind == LATER:
            delay = datetime.timedelta(seconds=self.chance.uniform(*LATER_S))
            self._consumer.release(message, until=delay)
        elif kind == REJECT:
            self._consumer.reject(message, reason=REASON)
        else:
            self._consumer.renew(message)


class _Sharing:
    """A consumer for as long as it is in its group."""

    def __init__(self, consumer: ShareConsumer, program: _Program, *, traversing: bool) -> None:
        self._consumer = consumer
        self._program = program
        self._traversing = traversing
        self._messages: Iterator[AcquiredMessage] | None = None

    def run(self, end: _End) -> bool:
        """Share, for some time; whether the group is done with all there is."""
        chance = self._program.chance
        ends_s = time.monotonic() + chance.uniform(*STAYS_S)
        while time.monotonic() < ends_s:
            try:
                asked_s = now_s()
                messages = self._next()
                if messages:
                    self._program.got(asked_s, messages)
                    time.sleep(chance.random() * WORK_S)
                    self._program.answer(messages)
                if self._program.answer_kept() or chance.random() < COMMITS:
                    began_s = now_s()
                    self._consumer.commit()
                    self._program.committed(began_s)
            except HQueueError as exc:
                self._messages = None
                _pause_after(exc)
                continue
            if not messages and end.is_over(self._consumer.group):
                return True
        return False

    def _next(self) -> list[AcquiredMessage]:
        if not self._traversing:
            return self._consumer.poll(POLL_MS, self._program.chance.randint(1, MESSAGES_MAX))
        if self._messages is None:
            self._messages = self._consumer.messages(idle_ms_max=POLL_MS, prefetch=PREFETCH)
        for message in self._messages:
            return [message]
        self._messages = None
        return []


class _SharingInLoop:
    """A consumer in an event loop, for as long as it is in its group."""

    def __init__(
        self, consumer: hqueue.aio.ShareConsumer, program: _Program, *, cancels: bool
    ) -> None:
        self._consumer = consumer
        self._program = program
        self._cancels = cancels

    async def run(self, end: _End) -> bool:
        """Share, for some time; whether the group is done with all there is."""
        chance = self._program.chance
        ends_s = time.monotonic() + chance.uniform(*STAYS_S)
        while time.monotonic() < ends_s:
            try:
                asked_s = now_s()
                count = chance.randint(1, MESSAGES_MAX)
                messages = await self._perhaps_cancelled(self._consumer.poll(POLL_MS, count)) or []
                if messages:
                    self._program.got(asked_s, messages)
                    await asyncio.sleep(chance.random() * WORK_S)
                    self._program.answer(messages)
                if self._program.answer_kept() or chance.random() < COMMITS:
                    await self._perhaps_cancelled(self._commit())
            except HQueueError as exc:
                print(repr(exc), file=sys.stderr)
                await asyncio.sleep(PAUSE_S)
                continue
            if not messages and await asyncio.to_thread(end.is_over, self._consumer.group):
                return True
        return False

    async def _commit(self) -> None:
        began_s = now_s()
        await self._consumer.commit()
        self._program.committed(began_s)

    async def _perhaps_cancelled(self, call: Awaitable[Answered]) -> Answered | None:
        """Its answer; None if it was cancelled."""
        cancelled = self._cancels and self._program.chance.random() < CANCELS
        timeout_s = self._program.chance.choice(CANCELLED_S) if cancelled else None
        try:
            return await asyncio.wait_for(call, timeout_s)
        except asyncio.TimeoutError:
            return None


class _End:
    """Finds out when the groups are done with all there is.

    Args:
        specification: of the process.
        client: a client.
    """

    def __init__(self, specification: Specification, client: Client) -> None:
        self._specification = specification
        self._client = client
        self._looking = threading.Lock()
        self._look_s = dict.fromkeys(GROUPS, 0.0)
        self._last: dict[int, int] | None = None

    def is_over(self, group: str) -> bool:
        """Whether no more will come, and a group is done with all there is."""
        if not self._specification.drained() or time.monotonic() < self._look_s[group]:
            return False
        queue = self._specification.shares_queue
        settings = self._specification.client_settings()
        with self._looking, _told():
            if self._last is None:
                self._last = last_ids(self._client, queue)
            self._look_s[group] = time.monotonic() + LOOK_EVERY_S
            return not unfinished(self._client, settings, queue, group, self._last)
        return False


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """An error within is printed, and ends there."""
    try:
        yield
    except HQueueError as exc:
        print(repr(exc), file=sys.stderr)


def _pause_after(error: HQueueError) -> None:
    print(repr(error), file=sys.stderr)
    time.sleep(PAUSE_S)


if __name__ == "__main__":
    _Process(Specification.begin(sys.argv[1])).run()
