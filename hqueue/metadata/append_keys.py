r"""The keys that sign notifications of appends.

A worker's port is open to all that reach it, and checksums are anyone's to compute. So a batch
that comes with a notification counts only with a MAC, HMAC-SHA-256 of

    "hqueue append\0"                      what is signed, and how
    length (2) │ queue (UTF-8)
    partition (2) │ slot (8)
    length (4) │ header
    number of cells (2), and for each, by topic: length (2) │ topic │ length (4) │ cell

with all numbers big-endian. The key lies in the coordination service. Who can read it can vouch for
any batch; who can't, for none.
"""

from __future__ import annotations

import dataclasses
import hmac
import secrets
import struct
from collections.abc import Mapping

from hqueue.metadata.ports import NEW, Version

__all__ = ["AppendKey", "AppendKeys", "sign"]

KEY_ID_BYTES = 8
SECRET_BYTES = 32
RENEW_AFTER_MS = 24 * 3_600_000
PREVIOUS_VALID_MS = 10 * 60_000
"""How long the key before still counts: for producers that have not heard of the new one yet."""

_WHAT = b"hqueue append\0"
_QUEUE = struct.Struct(">H")
_PLACE = struct.Struct(">HqI")
_COUNT = struct.Struct(">H")
_TOPIC = struct.Struct(">H")
_CELL = struct.Struct(">I")


@dataclasses.dataclass(frozen=True, slots=True)
class AppendKey:
    """A key, secret and all."""

    id: bytes
    """What names the key in a notification: 8 bytes, no secret."""
    secret: bytes = dataclasses.field(repr=False)
    """32 bytes."""
    created_ms: int
    """When it was made, by the wall clock of the worker that made it."""

    @classmethod
    def random(cls, now_ms: float) -> AppendKey:
        """A new key."""
        return cls(
            secrets.token_bytes(KEY_ID_BYTES), secrets.token_bytes(SECRET_BYTES), int(now_ms)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class AppendKeys:
    """The keys that are there: the one to sign with, and the one before it."""

    current: AppendKey
    previous: AppendKey | None = None
    revision: Version = NEW
    """What compare-and-set compares. Set by the store."""

    def needs_renewal(self, now_ms: float) -> bool:
        """Whether the key to sign with is a day old, or of a clock that is a day ahead."""
        return abs(now_ms - self.current.created_ms) >= RENEW_AFTER_MS

    def renewed(self, now_ms: float) -> AppendKeys:
        """With a new key to sign with. The one that was still counts for ten minutes."""
        return AppendKeys(AppendKey.random(now_ms), self.current, self.revision)

    def key(self, key_id: bytes, now_ms: float) -> AppendKey | None:
        """The key of this name, if it counts now."""
        if key_id == self.current.id:
            return self.current
        previous = self.previous
        if previous is None or key_id != previous.id:
            return None
        return previous if now_ms - self.current.created_ms < PREVIOUS_VALID_MS else None

    def vouch(
        self,
        key_id: bytes,
        mac: bytes,
        now_ms: float,
        *,
        queue: str,
        partition: int,
        slot: int,
        header: bytes,
        cells: Mapping[bytes, bytes],
    ) -> bool:
        """Whether a holder of a valid key signed exactly this. In constant time."""
        key = self.key(key_id, now_ms)
        return key is not None and hmac.compare_digest(
            mac, sign(key, queue, partition, slot, header=header, cells=cells)
        )


def sign(
    key: AppendKey,
    queue: str,
    partition: int,
    slot: int,
    *,
    header: bytes,
    cells: Mapping[bytes, bytes],
) -> bytes:
    """The MAC of a batch at its place. 32 bytes."""
    name = queue.encode()
    parts = [
        _WHAT, _QUEUE.pack(len(name)), name, _PLACE.pack(partition, slot, len(header)), header,
        _COUNT.pack(len(cells)),
    ]  # fmt: skip
    for topic in sorted(cells):
        cell = cells[topic]
        parts += (_TOPIC.pack(len(topic)), topic, _CELL.pack(len(cell)), cell)
    return hmac.digest(key.secret, b"".join(parts), "sha256")
