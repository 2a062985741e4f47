"""Consumers of share groups: each message has an answer of its own."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterable, Iterator
from functools import partial

from hqueue.client import Client, cluster_of
from hqueue.connecting import connect
from hqueue.consume.scan import Scan
from hqueue.errors import InvalidInputError
from hqueue.group_consumer import release
from hqueue.groups.catalog import Selection
from hqueue.metadata import PartitionKey
from hqueue.runtime.forgotten import Watched
from hqueue.runtime.held import Held
from hqueue.settings.keyword_options import Unpack
from hqueue.settings.kinds import check_kind
from hqueue.settings.numbers import check_number, check_whole
from hqueue.sharing.acquired_message import AcquiredMessage
from hqueue.sharing.membership import ShareMembership
from hqueue.sharing.share_calls import ShareCalls, idle_ms_of
from hqueue.sharing.share_options import ShareOptions, ShareSettings
from hqueue.sharing.shared_consumption import SharedConsumption

__all__ = ["ShareConsumer"]


class ShareConsumer:
    """Reads messages of queues as one of the consumers of a share group. Any consumer may get any
    message, so a group may have more consumers than partitions.

    A message that is returned is *acquired*: for `lock_ms` no other consumer gets it. The consumer
    then answers for it: `acknowledge` says that the message was processed, `release` has it
    delivered again, to the consumer that asks next, `reject` makes it a dead letter of the group,
    and `renew` acquires it for another `lock_ms`. A message whose lock lapses is delivered again,
    and a message that was delivered `deliveries_max` times becomes a dead letter. ZooKeeper keeps
    what the group has done with each message, so no message is lost when a consumer ends, even if
    it is killed.

    **Every message is delivered at least once, and never has two holders at once** within the
    lock's time, as each consumer's own clock measures it. Clocks need not agree on the time; they
    must only run equally fast, within 5 %. An answer that comes too late counts if no other
    consumer got the message since. **Order** is not kept, unless `ordered_by_key` is set: then the
    messages of a key are delivered in their order, each when the one before was acknowledged or
    rejected.

    Iterate over the consumer, or call `poll`. Asking for more messages acknowledges earlier ones
    that have no answer; with ``auto_acknowledge=False`` each message needs an answer. Use the
    consumer as a context manager, or `close` it. One thread at a time asks for messages, commits
    and closes: a call while another thread is in the middle of one is refused. Any thread may
    answer for messages and call `request_stop`. In a forked child every call raises
    `ClosedError`, except for `close` and `request_stop`, which do nothing there.

    Args:
        queues: the queues to consume.
        group: the group's name: 1 to 200 characters of any kind. A share group has no offsets, so
            no `Consumer` may use its name.
        topics: the topics to read; all if empty. All consumers of a group must use the same ones.
        client: the connection, which stays open when the consumer is closed. If None, the consumer
            calls `connect` without arguments, and closes that connection.
        options: see `ShareOptions`.

    Raises:
        InvalidInputError: an argument is out of range.
        QueueNotFoundError: one of the queues does not exist.
        GroupActiveError: a group of `Consumer` has the name.
        SettingsError: no client is given, and a setting is wrong; or another cluster has registered
            the ``broker_id``.
        StoreUnavailableError: HBase or ZooKeeper was unavailable.
    """

    def __init__(
        self,
        queues: str | Iterable[str],
        *,
        group: str,
        topics: Iterable[str] = (),
        client: Client | None = None,
        **options: Unpack[ShareOptions],
    ) -> None:
        settings = ShareSettings.of(options)
        names = sorted(Selection.chosen(queues, None).names)
        wanted = frozenset(Scan(topics=topics).topics)
        if client is not None:
            check_kind(client, Client, "client")
        self._settings = settings
        self._closed = False
        self._own_client = connect() if client is None else None
        used = self._own_client if client is None else client
        assert used is not None
        self.group = group
        """The group's name."""
        try:
            membership = ShareMembership(cluster_of(used), group, names, wanted, settings)
            self._consumption = SharedConsumption(membership)
            self._calls = ShareCalls(self._consumption, settings)
            self._using = Held(threading.Lock(), 0, _in_use)
            try:
                self._consumption.begin()
            except BaseException:
                self._consumption.release()
                raise
            released = partial(release, self._consumption.release, self._own_client)
            self._watched = Watched(self, "a share consumer", released)
        except BaseException:
            if self._own_client is not None:
                self._own_client.close()
            raise

    def __enter__(self) -> ShareConsumer:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self.close(acknowledge=self._settings.auto_acknowledge and kind is None)

    @property
    def consumer_id(self) -> str:
        """The consumer's ID in its group, of the form ``hostname:uuid``."""
        return self._consumption.consumer_id

    def assignment(self) -> set[PartitionKey]:
        """The partitions of its queues, which all consumers of the group share."""
        return set(self._consumption.partitions)

    def poll(self, timeout_ms: float = 0, messages_max: int = 500) -> list[AcquiredMessage]:
        """Acquire messages, and return them: all of one partition, and first those that were
        delivered before. The list is empty if none came in time.

        Args:
            timeout_ms: how long to wait for the first message.
            messages_max: how many messages to return at most, 1 to 10,000.

        Raises:
            InvalidInputError: an argument is out of range, or another thread is in the middle of a
                call that asks for messages, commits or closes.
            StoreUnavailableError: HBase or ZooKeeper was unavailable for ``operation_timeout_ms``.
                Later calls try again.
            QueueStateError: a queue was disabled for that long, or was deleted.
            CorruptLogError: a batch of the log can't be read. Its messages are not delivered until
                an operator chooses to skip it.
            ClosedError: the consumer was closed.
        """
        most = check_whole(messages_max, 1, 10_000, option="messages_max")
        wait_ms = check_number(timeout_ms, 0, float("inf"), option="timeout_ms")
        self._consumption.check_open()
        with self._using, self._calls.handing_out():
            return self._calls.poll(wait_ms, most, most)

    def __iter__(self) -> Iterator[AcquiredMessage]:
        """Iterate over all messages as they come, without an end. Like `messages`."""
        return self.messages()

    def messages(
        self, *, idle_ms_max: float | None = None, prefetch: int = 100
    ) -> Iterator[AcquiredMessage]:
        """Iterate over messages one by one, until `request_stop` or `close`. Raises as `poll`, also
        `ClosedError` if the consumer was closed before.

        Args:
            idle_ms_max: end after this long without a message; None for never.
            prefetch: how many messages to acquire at a time, 1 to 10,000. Messages that wait for
                half of their lock's time are given back to the group.
        """
        idle_ms = idle_ms_of(idle_ms_max)
        acquire_max = check_whole(prefetch, 1, 10_000, option="prefetch")
        self._consumption.check_open()
        while not self._closed:
            self._consumption.check_open()
            with self._using, self._calls.handing_out():
                messages = self._calls.poll(idle_ms, 1, acquire_max)
            if not messages:
                return
            yield messages[0]

    def acknowledge(self, *messages: AcquiredMessage) -> bool:
        """Answer that these messages were processed. The answers are written with the next `poll`,
        within about a second of an iteration, or by `commit`.

        Returns:
            Whether the consumer had all of these messages. The answer changes nothing for messages
            that it did not have: they were answered before, their locks had lapsed, or another
            consumer's `poll` returned them.

        Raises:
            InvalidInputError: an argument is not a message of a share consumer, or is of a
                queue that this consumer does not consume.
            ClosedError: the consumer was closed. The answer changes nothing.
        """
        return self._calls.acknowledge(messages)

    def release(
        self,
        *messages: AcquiredMessage,
        until: datetime.datetime | datetime.timedelta | int | None = None,
        counts: bool = True,
    ) -> bool:
        """Have these messages delivered again, to any consumer of the group. The answers are
        written when those of `acknowledge` are. Returns and raises as `acknowledge`.

        Args:
            messages: the messages.
            until: when to deliver them, at the earliest: an aware datetime, a timedelta from now by
                this machine's clock, or milliseconds since the epoch; None for at once.
            counts: whether this delivery counts towards `deliveries_max`. A program that stops
                before it has processed the messages gives False, and no `until`.

        Raises:
            InvalidInputError: as `acknowledge`; or the delivery does not count, and ``until`` is
                given.
            BufferFullError: a partition has so many delayed messages that there is no room for
                more. No message was released; the consumer keeps all of them.
        """
        return self._calls.release(messages, until, counts)

    def reject(
        self, *messages: AcquiredMessage, reason: str = "rejected", exhausted: bool = False
    ) -> bool:
        """Make these messages dead letters of the group. The dead letters are written when the
        answers of `acknowledge` are, and before the group is done with the messages. The command
        `hqueue dead-letters` shows them, and can return them to the group. Returns and raises as
        `acknowledge`.

        Args:
            messages: the messages.
            reason: why the messages are rejected, for operators who look at the dead letters; at
                most 1,000 characters.
            exhausted: whether the messages failed too often, so that they are counted with those
                that were delivered `deliveries_max` times.
        """
        return self._calls.reject(messages, reason, exhausted)

    def renew(self, *messages: AcquiredMessage) -> bool:
        """Keep these messages for another `lock_ms`, counted from when this answer is written: with
        the answers of `acknowledge`. Returns and raises as `acknowledge`.
        """
        return self._calls.renew(messages)

    def commit(self) -> None:
        """Write all answers that were given.

        Raises:
            InvalidInputError: another thread is in the middle of a call, as for `poll`.
            StoreUnavailableError: ZooKeeper was unavailable. The error's outcome says whether the
                answers may have been written; the next call writes them again.
        """
        self._consumption.check_open()
        with self._using:
            self._calls.commit()

    def request_stop(self) -> None:
        """Make `poll` return nothing from now on, and end iterations, so that the thread that uses
        the consumer can close it. Other threads and signal handlers may call it.
        """
        self._consumption.request_stop()

    def close(self, *, acknowledge: bool | None = None) -> None:
        """Write all answers, settle messages that have none, and free all resources. Call it in
        the thread that polls; other threads call `request_stop`.

        Args:
            acknowledge: whether to acknowledge messages without an answer, rather than release
                them; if None, ``auto_acknowledge`` decides. A context manager whose block ended
                with an error releases them.

        Raises:
            InvalidInputError: another thread is in the middle of a call, as for `poll`. The
                consumer stays open.
            StoreUnavailableError: the consumer is closed, but not all answers were written.
        """
        if self._consumption.process.is_left or self._closed:
            return
        decided = self._settings.auto_acknowledge if acknowledge is None else acknowledge
        with self._using:
            try:
                self._consumption.close(acknowledge=decided)
            finally:
                self._closed = True
                if self._own_client is not None:
                    self._own_client.close()
                self._watched.closed()


def _in_use() -> InvalidInputError:
    return InvalidInputError(
        "another thread is in the middle of a call to this consumer: use a consumer in one thread "
        "at a time; other threads may answer for messages and call request_stop"
    )
