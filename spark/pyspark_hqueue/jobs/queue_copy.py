"""Copies a queue into another, which may have another number of partitions: each message once.

The queue is read in rounds, which a checkpoint fixes. A round is written under its stream's name
and its own number, so that a repeated round finds what it has written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from hqueue import IdempotencyKeyReusedError, InvalidInputError, Queue
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.jobs.rounds import Round, Rounds, has_passed, stream_of
from pyspark_hqueue.jobs.targets import Target
from pyspark_hqueue.reading.clients import client_of
from pyspark_hqueue.reading.plan import Range
from pyspark_hqueue.reading.schema import WITH_HEADERS

__all__ = ["Copy", "check_target"]

ROUND_MESSAGES = 5_000_000


def check_target(queue: Queue, checkpoint: Folder) -> None:
    """Refuse to continue a copy in the middle if its target was truncated, or created again.

    Args:
        queue: the target.
        checkpoint: the checkpoint of the copy.

    Raises:
        InvalidInputError: the checkpoint has copied messages, and the target never had them.
    """
    name = stream_of(checkpoint)
    if name is None or not has_passed(checkpoint):
        return
    if queue.current_epoch(f"spark-write.copy.{name}") is None:
        raise InvalidInputError(
            "the target has nothing of what was copied with this checkpoint: it was truncated, or "
            "deleted and created again, or is in another cluster; give another checkpoint to copy "
            "all messages again",
            target=queue.name,
            checkpoint=checkpoint.uri,
        )


class Copy:
    """One queue's messages, in another. A run goes on where the last one ended.

    The IDs are new, and so are the times in them; the order of messages that come into the same
    partition from the same one stays.

    Args:
        spark: the session.
        source: the name of the queue that is read.
        target: the name of the queue that is written.
        checkpoint: a folder, one for each copy; with a new one all is copied again.
        by: what decides on a message's partition; see `pyspark_hqueue.jobs.targets`. If None,
            the source's partition where the target has as many, else the key.
        topics: the topics wanted; all if empty.
        round_messages: of one round.
        options: of the data source's stream, as ``startingOffsets`` and ``hqueue.gateways``.

    Raises:
        InvalidInputError: an argument is wrong, or the target lacks what an earlier run wrote.
        QueueNotFoundError: there is no such queue.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: str,
        target: str,
        checkpoint: str,
        *,
        by: str | None = None,
        topics: Sequence[str] = (),
        round_messages: int = ROUND_MESSAGES,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if source == target:
            raise InvalidInputError("a queue can't be copied into itself", queue=source)
        given = dict(options or {})
        settings = {name: value for name, value in given.items() if name.startswith("hqueue.")}
        if topics:
            given["subscribe"] = ",".join(topics)
        self._checkpoint = Folder(spark, checkpoint)
        self._rounds = Rounds(spark, source, self._checkpoint, given, round_messages)
        self._queue = queue = client_of(self._rounds.options.settings).queue(target)
        if by is None:
            by = "partition" if queue.partitions == self._rounds.queue.partitions else "key"
        self._target = Target(target, queue.partitions, by, settings)
        check_target(queue, self._checkpoint)
        self._target.check(spark.createDataFrame([], WITH_HEADERS))

    def pending(self) -> list[Range]:
        """What a run would copy. Raises as `Rounds.pending`."""
        return self._rounds.pending()

    def run(
        self, on_round: Callable[[int, int], None] | None = None, *, follow: bool = False
    ) -> None:
        """Copy what is there by now, or, following, what comes as well.

        Args:
            on_round: called after each round, with the messages that it passed, of all topics,
                and those that it wrote.
            follow: go on until the program is interrupted.

        Raises:
            As `Rounds.run` and `Target.write`.
        """

        def copy(round_: Round) -> None:
            check_target(self._queue, self._checkpoint)
            try:
                written = self._target.write(
                    round_.frame,
                    ("partition", "id"),
                    write_id=f"copy.{round_.name}",
                    epoch=round_.number,
                )
            except IdempotencyKeyReusedError as exc:
                raise InvalidInputError(
                    "an earlier run wrote other messages in this round: its checkpoint was newer, "
                    "or its --by another; put back both as they were, or copy to another target "
                    "with another checkpoint",
                    target=self._queue.name,
                    checkpoint=self._checkpoint.uri,
                    round=round_.number,
                ) from exc
            if on_round is not None:
                on_round(round_.messages, written)

        self._rounds.run(copy, follow=follow)


if __name__ == "__main__":
    from pyspark_hqueue.jobs.program import main

    main("copy")
