"""All scanners that are open: found by IDs that nobody guesses, and bounded together."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator

from hqueue.runtime.clock import Clock
from hqueue.runtime.held import Held, if_free
from hqueue_workers.api.failures import ScannerBusyError, ScannerNotFoundError
from hqueue_workers.api.scanner import ApiScanner

__all__ = ["ScannerTable"]

ID_BYTES = 16
REST_MS = 5_000.0
"""How long an unused scanner may hold a scan in HBase open."""


class ScannerTable:
    """The open scanners of a process. Thread-safe.

    Args:
        count_max: how many there may be.
        bytes_max: what they may hold together between calls, about. Where it is more, those that
            were unused for longest read again when they are used.
        idle_ms: how long one is kept that nobody uses.
        clock: where time comes from.
    """

    def __init__(self, *, count_max: int, bytes_max: int, idle_ms: float, clock: Clock) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._idle_ms = idle_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._scanners: OrderedDict[str, ApiScanner] = OrderedDict()
        """By ID; the one that was used last is last."""
        self.held_bytes = 0
        """What they hold together, about."""
        self.expired = 0
        """How many were forgotten because nobody used them."""

    def __len__(self) -> int:
        return len(self._scanners)

    def check_room(self) -> None:
        """See whether one more may be opened.

        Raises:
            ScannerBusyError: there are as many as there may be.
        """
        if len(self._scanners) >= self._count_max:
            raise ScannerBusyError(
                "this process has no room for one more scanner: close those that are not used",
                scanners_max=self._count_max,
            )

    def add(self, scanner: ApiScanner) -> str:
        """The ID of a scanner, which it has from now on.

        Raises:
            ScannerBusyError: there are as many as there may be.
        """
        scanner_id = secrets.token_hex(ID_BYTES)
        with self._lock:
            self.check_room()
            scanner.used_ms = self._clock.monotonic_ms()
            self._scanners[scanner_id] = scanner
        return scanner_id

    @contextlib.contextmanager
    def used(self, scanner_id: str) -> Iterator[ApiScanner]:
        """The scanner with this ID, for this caller alone.

        Raises:
            ScannerNotFoundError: there is none.
            ScannerBusyError: another call reads with it.
        """
        scanner = self._scanners.get(scanner_id)
        if scanner is None:
            raise _not_found()
        try:
            with Held(scanner.lock, 0, _busy):
                with self._lock:
                    if self._scanners.get(scanner_id) is not scanner:
                        raise _not_found()
                    self._scanners.move_to_end(scanner_id)
                try:
                    yield scanner
                finally:
                    scanner.used_ms = self._clock.monotonic_ms()
                    self._count(scanner)
        finally:
            self._empty_if_closed(scanner)
            self._make_room()

    def close(self, scanner_id: str) -> None:
        """Forget a scanner. A call that reads with it is answered.

        Raises:
            ScannerNotFoundError: there is none.
        """
        with self._lock:
            scanner = self._scanners.pop(scanner_id, None)
        if scanner is None:
            raise _not_found()
        self._discard(scanner)

    def sweep(self) -> None:
        """Forget scanners that nobody uses, and let others rest. To be called now and then."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            unused = self._forget_unused(now_ms)
        for _, scanner, idle_ms in unused:
            if idle_ms >= self._idle_ms:
                self._discard(scanner)
            else:
                if_free(scanner.lock, scanner.rest)
                self._empty_if_closed(scanner)

    def _forget_unused(self, now_ms: float) -> list[tuple[str, ApiScanner, float]]:
        """Forget scanners that were not used for long. These, and those that are to rest. The
        lock is held.
        """
        unused = [
            (scanner_id, scanner, now_ms - scanner.used_ms)
            for scanner_id, scanner in self._scanners.items()
            if now_ms - scanner.used_ms >= min(REST_MS, self._idle_ms) and not scanner.lock.locked()
        ]
        gone = [each for each in unused if each[2] >= self._idle_ms]
        for scanner_id, _, _ in gone:
            del self._scanners[scanner_id]
        self.expired += len(gone)
        return unused

    def close_all(self) -> None:
        """Forget all."""
        with self._lock:
            scanners = list(self._scanners.values())
            self._scanners.clear()
        for scanner in scanners:
            self._discard(scanner)

    def _discard(self, scanner: ApiScanner) -> None:
        scanner.closed = True  # Who has it now empties it afterwards.
        self._empty(scanner)

    def _empty_if_closed(self, scanner: ApiScanner) -> None:
        """Do what could not be done while its caller, who has just left it, had it."""
        if scanner.closed:
            self._empty(scanner)

    def _empty(self, scanner: ApiScanner) -> bool:
        """Let a scanner hold nothing, unless somebody has it; whether nobody had."""

        def drop() -> None:
            scanner.drop()
            self._count(scanner)

        return if_free(scanner.lock, drop)

    def _count(self, scanner: ApiScanner) -> None:
        """Count what a scanner holds, which is the caller's."""
        with self._lock:
            self.held_bytes += scanner.held_bytes - scanner.counted_bytes
            scanner.counted_bytes = scanner.held_bytes

    def _make_room(self) -> None:
        while True:
            with self._lock:
                if self.held_bytes <= self._bytes_max:
                    return
                scanners = list(self._scanners.values())
            if not any(each.counted_bytes and self._empty(each) for each in scanners):
                return


def _busy() -> ScannerBusyError:
    return ScannerBusyError("another call reads with this scanner: wait for its answer")


def _not_found() -> ScannerNotFoundError:
    return ScannerNotFoundError(
        "there is no such scanner here: it was closed, was idle for too long, or is another "
        "process's. Open one behind the last message that came"
    )
