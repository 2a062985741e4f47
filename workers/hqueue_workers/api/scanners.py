"""The open scanners of a process: found by unguessable IDs, and bounded together."""

from __future__ import annotations

import contextlib
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator

from hqueue.runtime.clock import Clock
from hqueue_workers.api.failures import ScannerBusyError, ScannerNotFoundError
from hqueue_workers.api.scanner import ApiScanner

__all__ = ["ScannerTable"]

ID_BYTES = 16
UNUSED_SCAN_MS_MAX = 5_000.0
"""How long an unused scanner may hold a scan in HBase open."""


class ScannerTable:
    """The open scanners of a process. Used by the event loop.

    Args:
        count_max: the most scanners that may be open.
        bytes_max: about how many bytes they may hold together between calls. Beyond that, the
            scanners that were unused for longest drop their bytes, and read again later.
        idle_ms: how long an unused scanner is kept.
        clock: the clock.
    """

    def __init__(self, *, count_max: int, bytes_max: int, idle_ms: float, clock: Clock) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._idle_ms = idle_ms
        self._clock = clock
        self._scanners: OrderedDict[str, ApiScanner] = OrderedDict()
        """The scanners by ID, in the order of their last use."""
        self.held_bytes = 0
        """About how many bytes all scanners hold together."""
        self.expired = 0
        """How many scanners expired because they were unused."""

    def __len__(self) -> int:
        return len(self._scanners)

    def check_room(self) -> None:
        """Return if one more scanner may be opened.

        Raises:
            ScannerBusyError: the maximum number of scanners is open.
        """
        if len(self._scanners) >= self._count_max:
            raise ScannerBusyError(
                "too many scanners are open: close unused ones",
                scanners_max=self._count_max,
            )

    def add(self, scanner: ApiScanner) -> str:
        """Add a scanner, and return its ID.

        Raises:
            ScannerBusyError: the maximum number of scanners is open.
        """
        scanner_id = secrets.token_hex(ID_BYTES)
        self.check_room()
        scanner.used_ms = self._clock.monotonic_ms()
        self._scanners[scanner_id] = scanner
        return scanner_id

    @contextlib.asynccontextmanager
    async def used(
        self, scanner_id: str, principal: str | None = None
    ) -> AsyncIterator[ApiScanner]:
        """Use the scanner with this ID for a block, alone.

        Args:
            scanner_id: its ID.
            principal: the caller's principal; None if callers need not prove theirs.

        Raises:
            ScannerNotFoundError: this principal has no such scanner.
            ScannerBusyError: another call is using it.
        """
        scanner = self._find(scanner_id, principal)
        if scanner.busy:
            raise _busy()
        self._scanners.move_to_end(scanner_id)
        scanner.busy = True
        try:
            yield scanner
        finally:
            scanner.busy = False
            scanner.used_ms = self._clock.monotonic_ms()
            self._count(scanner)
            if scanner.closed:  # Another call closed it meanwhile.
                await self._empty(scanner)
            await self._make_room()

    async def close(self, scanner_id: str, principal: str | None = None) -> None:
        """Close a scanner. A call that reads with it is still answered.

        Raises:
            ScannerNotFoundError: this principal has no such scanner.
        """
        scanner = self._find(scanner_id, principal)
        del self._scanners[scanner_id]
        await self._discard(scanner)

    async def sweep(self) -> None:
        """Close scanners that are unused for too long, and release the HBase scans of others. Call
        it regularly.
        """
        now_ms = self._clock.monotonic_ms()
        for scanner_id, scanner in list(self._scanners.items()):
            idle_ms = now_ms - scanner.used_ms
            if scanner.busy or idle_ms < min(UNUSED_SCAN_MS_MAX, self._idle_ms):
                continue
            if idle_ms < self._idle_ms:
                await scanner.release()
            elif self._scanners.pop(scanner_id, None) is not None:
                self.expired += 1
                await self._discard(scanner)

    async def close_all(self) -> None:
        """Close all scanners."""
        scanners = list(self._scanners.values())
        self._scanners.clear()
        for scanner in scanners:
            await self._discard(scanner)

    def _find(self, scanner_id: str, principal: str | None) -> ApiScanner:
        scanner = self._scanners.get(scanner_id)
        if scanner is None or scanner.principal != principal:
            raise _not_found()
        return scanner

    async def _discard(self, scanner: ApiScanner) -> None:
        scanner.closed = True  # A call that uses it now empties it afterwards.
        if not scanner.busy:
            await self._empty(scanner)

    async def _empty(self, scanner: ApiScanner) -> None:
        """Make an unused scanner drop what it holds."""
        scanner.busy = True
        try:
            await scanner.drop()
        finally:
            scanner.busy = False
            self._count(scanner)

    def _count(self, scanner: ApiScanner) -> None:
        """Update the count of the bytes that a scanner holds."""
        self.held_bytes += scanner.held_bytes - scanner.counted_bytes
        scanner.counted_bytes = scanner.held_bytes

    async def _make_room(self) -> None:
        """Empty the scanners that were unused for longest, until all together are within bounds."""
        for scanner in list(self._scanners.values()):
            if self.held_bytes <= self._bytes_max:
                return
            if scanner.counted_bytes and not scanner.busy:
                await self._empty(scanner)


def _busy() -> ScannerBusyError:
    return ScannerBusyError("another call is using this scanner: wait for its answer")


def _not_found() -> ScannerNotFoundError:
    return ScannerNotFoundError(
        "this process has no such scanner: it was closed, was idle for too long, or belongs to "
        "another process or principal. Open another scanner after the last message that you "
        "received"
    )
