"""A worker makes keys where there are none, renews them, and believes those that are there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from hqueue import RequestRefusedError
from hqueue.metadata import Coordination
from hqueue.metadata.append_keys import RENEW_AFTER_MS, AppendKey, AppendKeys, sign
from hqueue.push.append_notifier import BATCH
from hqueue.runtime.steps import Work
from hqueue.runtime.stepwise import stepwise
from hqueue_workers.delivery.append_keys import AppendKeyring
from tests.support.worker_doubles import LATER, Service, SteppedRuntime, settle


class Port(Service):
    """The keys of all, as they are reported to one who watches them."""

    def __init__(self) -> None:
        self.keys: AppendKeys | None = None
        self.refuses = False
        self.read_count = 0
        self._listeners: list[Callable[[AppendKeys | None], None]] = []

    def become(self, keys: AppendKeys | None) -> None:
        self.keys = keys
        for listener in self._listeners:
            listener(keys)

    @stepwise
    def read(self) -> Work[object, AppendKeys | None]:
        self.read_count += 1
        keys = self.keys
        yield LATER
        return keys

    @stepwise
    def replace(
        self, known: AppendKeys | None, keys: AppendKeys
    ) -> Work[object, AppendKeys | None]:
        yield LATER
        if self.refuses:
            raise RequestRefusedError("no right to do so")
        if known == self.keys:
            self.become(keys)
        return self.keys

    def watch(self, listener: Callable[[AppendKeys | None], None]) -> Port:
        self._listeners.append(listener)
        listener(self.keys)
        return self

    def close(self) -> None:
        self._listeners.clear()


class Paced(SteppedRuntime):
    """A runtime in which a sleep ends when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.next = asyncio.Event()

    async def sleep_ms(self, duration_ms: float) -> None:
        self.stepped.now_ms += duration_ms
        await self.next.wait()
        self.next.clear()


def batch(key: AppendKey) -> Any:
    mac = sign(key, "q", 1, 1 << 40, header=b"h", cells={b"t": b"c"})
    return BATCH(1, 1 << 40, b"h", {b"t": b"c"}, key.id, mac)


def play(scene: Callable[[Paced, Port, AppendKeyring], Any]) -> None:
    async def run() -> None:
        runtime, port = Paced(), Port()
        session = cast(Coordination, SimpleNamespace(append_keys=port))
        keyring = AppendKeyring(session, runtime)
        runtime.start(keyring.run())
        await settle()
        await scene(runtime, port, keyring)
        assert not runtime.failed.done()
        await runtime.close()

    asyncio.run(run())


async def minute(runtime: Paced) -> None:
    runtime.next.set()
    await settle()


def test_the_first_worker_makes_the_key_and_a_new_one_each_day() -> None:
    async def scene(runtime: Paced, port: Port, keyring: AppendKeyring) -> None:
        first = port.keys
        assert first is not None
        assert keyring.vouches_for("q", batch(first.current))
        await minute(runtime)
        assert port.keys is first
        assert port.read_count == 1, "what is watched is not asked for"
        runtime.stepped.now_ms += RENEW_AFTER_MS
        await minute(runtime)
        assert port.keys is not None
        assert port.keys.previous == first.current
        assert keyring.vouches_for("q", batch(port.keys.current))
        assert keyring.vouches_for("q", batch(first.current))
        assert not keyring.vouches_for("q", batch(AppendKey.random(0)))

    play(scene)


def test_keys_that_were_deleted_count_no_more_and_are_made_again() -> None:
    async def scene(runtime: Paced, port: Port, keyring: AppendKeyring) -> None:
        stolen = port.keys
        assert stolen is not None
        port.become(None)
        await settle()
        assert not keyring.vouches_for("q", batch(stolen.current))
        await minute(runtime)
        assert port.keys is not None
        assert not keyring.vouches_for("q", batch(stolen.current))
        assert keyring.vouches_for("q", batch(port.keys.current))

    play(scene)


def test_a_worker_that_may_make_none_believes_nobody_and_goes_on() -> None:
    async def scene(runtime: Paced, port: Port, keyring: AppendKeyring) -> None:
        port.refuses = True
        port.become(None)
        await minute(runtime)
        assert not keyring.vouches_for("q", batch(AppendKey.random(0)))
        port.refuses = False
        await minute(runtime)
        assert port.keys is not None

    play(scene)
