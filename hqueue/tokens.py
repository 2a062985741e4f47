"""Puts that are known by a token, and the works that they belong to."""

from __future__ import annotations

import dataclasses
import hashlib

from hqueue import records
from hqueue.batch import NONCE_BYTES
from hqueue.clock import Clock, Deadline
from hqueue.coordination import check_name
from hqueue.errors import InvalidInputError, StoreUnavailableError, SupersededError
from hqueue.limits import SEQUENCE_BITS
from hqueue.message import MessageID, Moment, as_message_id
from hqueue.ports import RecordPort

__all__ = ["Search", "Works", "search_for"]

NUMBER_MAX = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Search:
    """What to look for in the log before a batch is appended, and from where on."""

    nonce: bytes
    since: int | None
    """An ID; the oldest header that is kept if None."""


def search_for(
    token: str | bytes | None, since: Moment | None, skew_ms_max: int, *, anywhere: bool
) -> Search:
    """What these arguments of `Queue.put` mean.

    The search begins a little before the moment: another machine's clock may be behind that of
    the one that named it, each by as much as the bound.

    Raises:
        InvalidInputError: they are out of range, or don't go together.
    """
    if token is None:
        raise InvalidInputError("since says where a token is searched: give a token, too")
    if isinstance(token, str):
        token = token.encode(errors="surrogatepass")
    if not isinstance(token, bytes) or not token:
        raise InvalidInputError("a token is str or bytes, and not empty", token=token)
    if anywhere:
        raise InvalidInputError(
            "a put with a token needs a partition or a key: it is searched for in that partition"
        )
    nonce = hashlib.blake2b(token, digest_size=NONCE_BYTES, person=b"hqueue token").digest()
    if since is None:
        return Search(nonce, None)
    return Search(nonce, max(0, as_message_id(since) - (2 * skew_ms_max << SEQUENCE_BITS)))


class Works:
    """Since when each work has been under way, as a record that lies with the queue.

    Args:
        port: where the records lie.
        clock: where time comes from.
    """

    def __init__(self, port: RecordPort, clock: Clock) -> None:
        self._port = port
        self._clock = clock

    def begin(self, name: str, number: int, deadline: Deadline) -> MessageID:
        """As `Queue.begin`."""
        check_name(name)
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= NUMBER_MAX:
            raise InvalidInputError("the number of a work is 0 to 2**63 - 1", number=number)
        return deadline.run(lambda: self._begin(name, number))

    def begun(self, name: str, deadline: Deadline) -> tuple[int, MessageID] | None:
        """As `Queue.begun`."""
        check_name(name)
        found = deadline.run(lambda: self._port.record(name))
        return None if found is None else records.decode_work(found, name)

    def _begin(self, name: str, number: int) -> MessageID:
        found = self._port.record(name)
        if found is not None:
            latest, since = records.decode_work(found, name)
            if latest == number:
                return since
            if latest > number:
                raise SupersededError(
                    "a later number of this work has begun, so this one is over",
                    work=name,
                    number=number,
                    latest=latest,
                )
        since = MessageID(self._clock.wall_ms())
        if not self._port.replace_record(name, found, records.encode_work(number, since)):
            raise StoreUnavailableError("others begin the same work at the moment", work=name)
        return since
