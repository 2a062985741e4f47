"""Puts with an idempotency key, and the epochs of the producers that send them."""

from __future__ import annotations

import dataclasses
import hashlib

from hqueue.errors import FencedError, InvalidInputError, Outcome, StoreUnavailableError
from hqueue.format.header import NONCE_BYTES
from hqueue.log.steps import ReadRecord, ReplaceRecord, Work, ask
from hqueue.message_id import MessageID, id_of
from hqueue.metadata import check_name, encoding
from hqueue.position import Position, as_message_id
from hqueue.runtime.clock import Clock, Deadline
from hqueue.settings.numbers import as_whole

__all__ = ["SINCE_WITHOUT_KEY", "ProducerEpochs", "Search", "key_bytes", "search_for"]

EPOCH_MAX = 2**63 - 1

SINCE_WITHOUT_KEY = (
    "since works only with an idempotency key, whose search it bounds: give the key, too"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Search:
    """What to look for in the log before a batch is appended, and from where on."""

    nonce: bytes
    since: int | None
    """An ID. If None, the search begins at the oldest header."""


def key_bytes(idempotency_key: str | bytes) -> bytes:
    """An idempotency key as bytes.

    Raises:
        InvalidInputError: it is neither a text nor bytes, or is empty.
    """
    if isinstance(idempotency_key, str):
        idempotency_key = idempotency_key.encode(errors="surrogatepass")
    if not isinstance(idempotency_key, bytes) or not idempotency_key:
        raise InvalidInputError(
            "an idempotency key must be str or bytes, and not empty",
            idempotency_key=idempotency_key,
        )
    return idempotency_key


def search_for(
    idempotency_key: str | bytes | None, since: Position | None, skew_ms_max: int, *, anywhere: bool
) -> Search:
    """What these arguments of `Queue.put` mean.

    The search begins a little before the moment: another machine's clock may be behind that of
    the one that named it, each by as much as the bound.

    Raises:
        InvalidInputError: they are out of range, or don't go together.
    """
    if idempotency_key is None:
        raise InvalidInputError(SINCE_WITHOUT_KEY)
    given = key_bytes(idempotency_key)
    if anywhere:
        raise InvalidInputError(
            "a put with an idempotency key needs a partition or a key: the batch is searched for "
            "in that partition"
        )
    nonce = hashlib.blake2b(given, digest_size=NONCE_BYTES, person=b"hqueue token").digest()
    if since is None:
        return Search(nonce, None)
    return Search(nonce, max(0, int(as_message_id(since)) - id_of(2 * skew_ms_max)))


class ProducerEpochs:
    """The epochs of named producers: which one counts, and since when. Records with the queue.

    Args:
        clock: where time comes from.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def claim(self, name: str, epoch: int, deadline: Deadline) -> Work[MessageID]:
        """Like `Queue.claim_epoch`."""
        check_name(name)
        number = as_whole(epoch, 0, EPOCH_MAX)
        if number is None:
            raise InvalidInputError("an epoch must be 0 to 2**63 - 1", epoch=epoch)
        return deadline.insist(lambda: self._claim(name, number))

    def current(self, name: str, deadline: Deadline) -> Work[tuple[int, MessageID] | None]:
        """Like `Queue.current_epoch`."""
        check_name(name)
        found: bytes | None = yield from deadline.insist(lambda: ask(ReadRecord(name)))
        return None if found is None else encoding.decode_epoch(found, name)

    def _claim(self, name: str, epoch: int) -> Work[MessageID]:
        found: bytes | None = yield ReadRecord(name)
        if found is not None:
            latest, since = encoding.decode_epoch(found, name)
            if latest == epoch:
                return since
            if latest > epoch:
                raise FencedError(
                    "a later epoch of this producer was claimed: this one is fenced",
                    producer=name,
                    epoch=epoch,
                    latest=latest,
                )
        since = MessageID(self._clock.wall_ms())
        if not (yield ReplaceRecord(name, found, encoding.encode_epoch(epoch, since))):
            raise StoreUnavailableError(
                "other programs are claiming an epoch of this producer: try again",
                outcome=Outcome.NOT_APPLIED,
                producer=name,
            )
        return since
