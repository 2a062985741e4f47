"""Decides which notified batches are trusted: those that are signed with a known key."""

from __future__ import annotations

from typing import Any

from hqueue import HQueueError
from hqueue.metadata import Coordination, Watch
from hqueue.metadata.append_keys import AppendKey, AppendKeys
from hqueue_workers.node.runtime import Runtime

__all__ = ["AppendKeyring"]

LOOK_EVERY_MS = 60_000.0


class AppendKeyring:
    """The keys of all workers, as this worker knows them. It creates the first key, and a new one
    each day.

    Without keys that can be read, no batch is trusted, and all messages are read from HBase.

    Args:
        coordination: the store of the keys.
        runtime: the worker's runtime.
    """

    def __init__(self, coordination: Coordination, runtime: Runtime) -> None:
        self._port = coordination.append_keys
        self._runtime = runtime
        self._keys: AppendKeys | None = None
        self._watch: Watch | None = None

    async def run(self) -> None:
        """Follow the keys and renew them, until cancelled."""
        self._watch = await self._runtime.coordinate(
            lambda: self._port.watch(lambda keys: self._runtime.call(lambda: self._see(keys)))
        )
        while True:
            try:
                await self._renew()
            except HQueueError as exc:
                text = "the keys of notifications can't be renewed now: %s"
                self._runtime.faults.met("keys", text, exc)
            else:
                self._runtime.faults.over("keys", "the keys of notifications can be renewed again")
            await self._runtime.sleep_ms(LOOK_EVERY_MS)

    def close(self) -> None:
        """Stop following the keys."""
        if self._watch is not None:
            self._watch.close()

    def vouches_for(self, queue: str, batch: Any) -> bool:
        """Whether a notified batch (``TBatch``) was signed by a program that may append.

        Raises:
            Exception: it is not a batch.
        """
        keys = self._keys
        return keys is not None and keys.vouch(
            batch.key or b"",
            batch.mac or b"",
            self._runtime.clock.wall_ms(),
            queue=queue,
            partition=batch.partition,
            slot=batch.slot,
            header=batch.header,
            cells=batch.cells,
        )

    async def _renew(self) -> None:
        now_ms = self._runtime.clock.wall_ms()
        if self._keys is not None and not self._keys.needs_renewal(now_ms):
            return
        known = await self._port.read.in_loop()
        if known is not None and not known.needs_renewal(now_ms):
            return
        new = AppendKeys(AppendKey.random(now_ms)) if known is None else known.renewed(now_ms)
        await self._port.replace.in_loop(known, new)

    def _see(self, keys: AppendKeys | None) -> None:
        self._keys = keys
