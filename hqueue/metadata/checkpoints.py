"""How far each subscriber is, in ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoNodeError, NotEmptyError

from hqueue.errors import (
    CheckpointMovedError,
    InvalidInputError,
    StoreUnavailableError,
    SubscriberConnectedError,
    SubscriberNotFoundError,
)
from hqueue.message import MessageID
from hqueue.metadata import Checkpoint, SubscriptionKey
from hqueue.metadata.encoding import decode_checkpoint, encode_checkpoint
from hqueue.runtime.clock import Deadline
from hqueue.metadata.paths import Paths
from hqueue.zookeeper.requests import create, delete, get, put
from hqueue.zookeeper.session import TRANSACTION_BYTES_MAX, Session, Transaction

__all__ = ["Checkpoints", "portions"]

STEP_BYTES = 112
"""What a checkpoint takes of a seek besides paths and access rights, at most."""

RULE_BYTES = 12
"""What an access right takes besides its scheme and ID."""


class Checkpoints:
    """The `CheckpointPort` on ZooKeeper. Thread-safe. A revision is the node's version."""

    def __init__(self, session: Session, paths: Paths) -> None:
        self._session = session
        self._paths = paths

    def read(self, key: SubscriptionKey) -> Checkpoint | None:
        """As `CheckpointPort.read`."""
        return self.read_many([key]).get(key)

    def read_many(self, keys: Iterable[SubscriptionKey]) -> dict[SubscriptionKey, Checkpoint]:
        """As `CheckpointPort.read_many`."""
        wanted = list(keys)
        deadline = self._session.deadline()
        return deadline.run(lambda: self._read(wanted, deadline))

    def _read(
        self, keys: list[SubscriptionKey], deadline: Deadline
    ) -> dict[SubscriptionKey, Checkpoint]:
        paths = [self._paths.subscriber(key) for key in keys]
        answers = self._session.run([(path, get(path)) for path in paths], deadline)
        return {
            key: Checkpoint(decode_checkpoint(answer[0], path), answer[1].version)
            for key, path, answer in zip(keys, paths, answers, strict=True)
            if not isinstance(answer, NoNodeError)
        }

    def create(
        self, starts: Mapping[SubscriptionKey, MessageID]
    ) -> dict[SubscriptionKey, Checkpoint]:
        """As `CheckpointPort.create`."""
        deadline = self._session.deadline()

        def create_missing() -> dict[SubscriptionKey, Checkpoint]:
            answers = self._session.run(
                [
                    (key.subscriber, create(self._paths.subscriber(key), encode_checkpoint(at)))
                    for key, at in starts.items()
                ],
                deadline,
            )
            found = self._read(list(starts), deadline)
            gone = any(isinstance(answer, NoNodeError) for answer in answers)
            if gone or len(found) < len(starts):
                raise StoreUnavailableError("checkpoints are deleted while they are created")
            return found

        return deadline.run(create_missing)

    def compare_and_set(
        self, key: SubscriptionKey, known: Checkpoint, next_id: MessageID
    ) -> Checkpoint:
        """As `CheckpointPort.compare_and_set`."""
        if next_id < known.next:
            raise InvalidInputError(
                "a checkpoint never goes back", subscriber=key.subscriber, next=str(next_id)
            )
        path, data = self._paths.subscriber(key), encode_checkpoint(next_id)
        deadline = self._session.deadline()
        lost = False

        def move() -> Checkpoint:
            nonlocal lost
            try:
                answer = self._session.run([(path, put(path, data, known.revision))], deadline)
            except StoreUnavailableError:
                lost = True
                raise
            if not isinstance(answer[0], Exception):
                return Checkpoint(next_id, answer[0].version)
            done = Checkpoint(next_id, known.revision + 1)
            if not lost or self._read([key], deadline).get(key) != done:
                raise CheckpointMovedError(
                    "somebody else changed or deleted the checkpoint", **key._asdict()
                )
            return done

        return deadline.run(move)

    def seek(self, starts: Mapping[SubscriptionKey, MessageID]) -> None:
        """As `CheckpointPort.seek`.

        That a subscriber is absent is part of the transaction: its address can be created. As
        many go into one as fit its bytes.
        """
        for chunk in portions(starts, self._seek_bytes):
            moves = [self._move(key, starts[key]) for key in chunk]
            self._change(chunk, _joined(moves))

    def _move(self, key: SubscriptionKey, start: MessageID) -> Transaction:
        def operations(transaction: TransactionRequest) -> None:
            transaction.create(self._paths.address(key), b"", ephemeral=True)
            transaction.set_data(self._paths.subscriber(key), encode_checkpoint(start))
            transaction.delete(self._paths.address(key))

        return operations

    def _seek_bytes(self, key: SubscriptionKey) -> int:
        """What the seek of one checkpoint takes of a transaction, at most."""
        paths = (self._paths.address(key), self._paths.subscriber(key), self._paths.address(key))
        prefix_bytes = self._session.members.prefix_bytes
        rules = self._session.settings.zookeeper_acl
        return (
            STEP_BYTES
            + sum(prefix_bytes + len(path.encode()) for path in paths)
            + sum(RULE_BYTES + len(f"{rule.scheme}{rule.id}".encode()) for rule in rules)
        )

    def delete(self, keys: Iterable[SubscriptionKey]) -> None:
        """As `CheckpointPort.delete`. A node with a child, such as an address, can't be deleted.

        The nodes above go with the last one.
        """
        deleted = list(keys)
        deadline = self._session.deadline()
        deletes = [(key.subscriber, delete(self._paths.subscriber(key))) for key in deleted]
        answers = deadline.run(lambda: self._session.run(deletes, deadline))
        for key, answer in zip(deleted, answers, strict=True):
            if isinstance(answer, NotEmptyError):
                raise _connected(key)
        partitions = {self._paths.subscriber(key).rpartition("/")[0] for key in deleted}
        for above in (partitions, {path.rpartition("/")[0] for path in partitions}):
            self._session.run([(path, delete(path)) for path in sorted(above)], deadline)

    def _change(self, keys: list[SubscriptionKey], operations: Transaction) -> None:
        deadline = self._session.deadline()

        def change() -> None:
            (error,) = self._session.transact([(keys[0].subscriber, operations)], deadline)
            if error is not None:
                self._raise_conflict(keys, deadline)
                raise StoreUnavailableError("subscribers come and go just now")

        deadline.run(change)

    def _raise_conflict(self, keys: list[SubscriptionKey], deadline: Deadline) -> None:
        """Raise for a subscriber that stands in the way of a transaction."""
        found = self._read(keys, deadline)
        for key in keys:
            if key not in found:
                raise SubscriberNotFoundError("there is no such subscriber", **key._asdict())
        addresses = [(key.subscriber, get(self._paths.address(key))) for key in keys]
        for key, answer in zip(keys, self._session.run(addresses, deadline), strict=True):
            if not isinstance(answer, Exception):
                raise _connected(key)


def portions(
    keys: Iterable[SubscriptionKey], size: Callable[[SubscriptionKey], int]
) -> Iterator[list[SubscriptionKey]]:
    """Cut into as few portions as `TRANSACTION_BYTES_MAX` allows. Checkpoints of the longest
    names that there are take 2 KB each, so 250 go together below any root of up to 200 bytes.
    """
    chunk: list[SubscriptionKey] = []
    size_bytes = 0
    for key in keys:
        if chunk and size_bytes + size(key) > TRANSACTION_BYTES_MAX:
            yield chunk
            chunk, size_bytes = [], 0
        chunk.append(key)
        size_bytes += size(key)
    if chunk:
        yield chunk


def _joined(transactions: list[Callable[[TransactionRequest], object]]) -> Transaction:
    def operations(transaction: TransactionRequest) -> None:
        for each in transactions:
            each(transaction)

    return operations


def _connected(key: SubscriptionKey) -> SubscriberConnectedError:
    return SubscriberConnectedError("the subscriber is connected; stop it first", **key._asdict())
