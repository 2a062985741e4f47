"""Exactly-once processing from queue to queue, shared by the processors of a group."""

from __future__ import annotations

import threading

from hqueue.client import Client
from hqueue.connecting import connect
from hqueue.consumer import Consumer
from hqueue.errors import ClosedError, InvalidInputError
from hqueue.exactly_once_steps import Bridge, Plan, Process
from hqueue.groups.consumer_options import ConsumerOptions
from hqueue.groups.paths import GroupPaths
from hqueue.runtime.held import Held
from hqueue.settings.keyword_options import Unpack
from hqueue.settings.kinds import check_kind

__all__ = ["ExactlyOnceProcessor"]


class ExactlyOnceProcessor:
    """Processes each message of a queue and puts the results into another queue exactly once: a
    read-process-write loop, for which Kafka uses transactions.

    The processors of one group share the partitions of the source. Any number of them may run; each
    may die or stand still at any point, and may be started again. The group guarantees:

    * **Each result is in the target once.** The results of one partition of the source are in its
      order, in the partition of the target with the same number (modulo the number of the target's
      partitions).
    * **No message is left out.** Messages whose results were not put and committed when a processor
      ended are processed by the one that gets the partition next. It finds results that were put
      already, and does not put them twice.

    The guarantees have these conditions:

    * `process` returns the same results for the same message each time. It is called again for
      messages whose results were not committed, perhaps by another processor.
    * The target keeps its messages for as long as a message of the source may wait to be processed.
      Otherwise a put that may be a repetition is refused.
    * Only processors with the same source and target commit for the group, and its offsets are not
      set back. A batch of results is identified by the offset at which it begins. So after a reset
      to an earlier position, results that are in the target already may be put twice or be left
      out. To process messages again, use another group or another target. A reset to a position
      after all messages that were processed, while no processor runs, leaves out the messages in
      between.

    Results are put in batches of up to 10,000 messages and 4 MiB; the results of one message may
    exceed this. The group's offset moves when a batch is put. After a partition was taken over, the
    offset does not move past messages without results until the first batch is put.

    Call `run` in one thread at a time; other threads may call `request_stop`. Use the processor as
    a context manager, or `close` it.

    Args:
        source: the name of the queue that is read.
        target: the name of the queue for the results.
        group: the group's name, as a `Consumer` takes it.
        process: returns the results of a message. An error that it raises ends `run`; the message
            comes again when `run` is called again.
        client: the connection, which stays open when the processor is closed. If None, the
            processor calls `connect` without arguments, and `close` closes that connection.
        messages_max: how many messages are taken at a time, 1 to 10,000.
        options: see `ConsumerOptions`; ``auto_commit`` is refused.

    Raises:
        InvalidInputError: an argument is out of range.
        QueueNotFoundError: one of the queues does not exist.
        SettingsError: no client is given, and a setting is wrong.
        StoreUnavailableError: HBase was unavailable.
    """

    def __init__(
        self,
        source: str,
        target: str,
        group: str,
        process: Process,
        *,
        client: Client | None = None,
        messages_max: int = 500,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._plan = Plan(group, process, messages_max, options)
        self._stopping = self._closed = False
        self._running = threading.Lock()
        """Held while it runs or is being closed."""
        self._consumer: Consumer | None = None
        self._own_client = connect() if client is None else None
        self._client: Client = self._own_client or check_kind(client, Client, "client")
        try:
            GroupPaths(self._client.settings.zookeeper_root, group)
            self._source = self._client.queue(source)
            self._target = self._client.queue(target)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ExactlyOnceProcessor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, *, idle_ms_max: float | None = None) -> int:
        """Join the group, and process messages until a stop is requested.

        If other processors took over its partitions, for example because its process stood still,
        the processor joins the group again by itself. After an error, call `run` again: it
        continues at the group's offsets.

        Args:
            idle_ms_max: end after this long without a message; None for never. The time counts from
                when it has partitions, or other processors have all of them.

        Returns:
            How many messages were processed, with their results put and committed. 0 at once if a
            stop was requested before.

        Raises:
            InvalidInputError: it runs already, in another thread, or `process` calls it; or
                `process` returned something other than messages.
            IdempotencyKeyReusedError: the target has other results for these messages, or has them
                from before a reset of the group's offsets. Or messages expired or were truncated
                after their results were put and before the offset was committed. This batch was
                not put. To process messages again, use another group or another target; to
                continue with later ones, reset the group's offsets to a position after all messages
                that were processed.
            IdempotencyKeyTooOldError: the target did not keep its messages for long enough. Nothing
                was put.
            MessageTooLargeError: the results of one message exceed the limits of a batch.
            StoreUnavailableError: HBase or ZooKeeper was unavailable.
            QueueStateError: a queue is disabled, or was deleted.
            ClosedError: the processor or the client was closed.
        """
        idle_ms = self._plan.idle_ms(idle_ms_max)
        with self._alone("wait until its run has returned, or make another processor"):
            if self._closed:
                raise ClosedError("the processor was closed; make another one")
            return self._run(idle_ms)

    def _run(self, idle_ms: float) -> int:
        """Like `run`, which holds the lock."""
        if self._stopping:
            return 0
        # The group has put nothing before that: the target is searched from there on.
        since = self._target.claim_epoch(self._plan.producer(self._source.name))
        processed, is_over = 0, False
        while not is_over:
            with self._consumer_of_group() as consumer:
                bridge = Bridge(
                    self._plan,
                    client=self._client,
                    consumer=consumer,
                    source=self._source,
                    target=self._target,
                    since=since,
                    stopping=lambda: self._stopping,
                )
                self._consumer = consumer
                try:
                    consumer.subscribe(self._source.name, on_assigned=bridge.begin)
                    is_over = bridge.run(idle_ms)
                finally:
                    self._consumer = None
            processed += bridge.processed
        return processed

    def _consumer_of_group(self) -> Consumer:
        return Consumer(group=self._plan.group, client=self._client, **self._plan.options)

    def request_stop(self) -> None:
        """Make `run` return when the messages that it has taken are processed, put and committed.
        Every later `run` of this processor returns at once. Other threads and signal handlers may
        call it.
        """
        self._stopping = True
        consumer = self._consumer
        if consumer is not None:
            consumer.request_stop()

    def close(self) -> None:
        """Free all resources. Every later `run` raises `ClosedError`.

        Raises:
            InvalidInputError: `run` has not returned. Nothing was closed; call `request_stop`, and
                close the processor afterwards.
        """
        with self._alone("call request_stop, and close it when its run has returned"):
            self._closed = True
            if self._own_client is not None:
                self._own_client.close()

    def _alone(self, advice: str) -> Held:
        """Holds the processor for one call."""
        return Held(
            self._running, 0, lambda: InvalidInputError(f"the processor is running: {advice}")
        )
