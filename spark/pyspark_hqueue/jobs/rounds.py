"""Reading a queue in rounds, each of them once.

A round is a batch of a stream: its ranges of IDs stand in the stream's checkpoint before anything
is read, and it is begun again until it is done. What a round does must come to the same when it is
done twice, wholly or in part; then a job can be killed anywhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from hqueue import InvalidInputError
from hqueue.settings.numbers import whole_number
from pyspark_hqueue.jobs.failures import translated
from pyspark_hqueue.jobs.folder import Folder
from pyspark_hqueue.reading.admission import ADMITS
from pyspark_hqueue.reading.clients import client_of
from pyspark_hqueue.reading.located import frame_of
from pyspark_hqueue.reading.plan import Position, Range, partitions_of, ranges_between, starts_of
from pyspark_hqueue.reading.read_options import ReadOptions
from pyspark_hqueue.reading.schema import WITH_HEADERS

__all__ = ["Round", "Rounds", "check_planned", "has_passed", "set_back", "stream_of"]


@dataclasses.dataclass(frozen=True)
class Round:
    """A part of a queue, fixed for good.

    Args:
        name: the stream's, which it has from its checkpoint.
        number: rounds are counted from 0 on.
        messages: how many of all topics there are.
        frame: what to read, with the data source's columns, headers among them.
        stops: the first ID after the round, for each partition that it has.
    """

    name: str
    number: int
    messages: int
    frame: DataFrame
    stops: Mapping[int, int] = dataclasses.field(default_factory=dict)


def check_planned(checkpoint: Folder, last: int | None, of: str) -> None:
    """Refuse a checkpoint that was removed or set back: its next rounds would have the numbers of
    rounds that are done, and other messages.

    Args:
        checkpoint: the folder.
        last: the number of the last round that the target has; None if it has none.
        of: the target's name, for the error.

    Raises:
        InvalidInputError: the checkpoint does not know that round.
    """
    if last is not None and not checkpoint.exists(f"offsets/{last}"):
        raise set_back(checkpoint, last, of)


def set_back(checkpoint: Folder, number: int, of: str) -> InvalidInputError:
    """The error for a target that has a round which the checkpoint does not know, or knows with
    other messages.
    """
    return InvalidInputError(
        "the checkpoint was removed or set back after it wrote to the target: put back the "
        "checkpoint as it was, or begin again with another target and another checkpoint",
        target=of,
        checkpoint=checkpoint.uri,
        round=number,
    )


def stream_of(checkpoint: Folder) -> str | None:
    """The name of the checkpoint's stream; None if the stream has not begun."""
    text = checkpoint.read("metadata")
    return None if text is None else str(json.loads(text)["id"])


def has_passed(checkpoint: Folder) -> bool:
    """Whether a round that is done had messages. Only the first round can have none."""
    done = _last_done(checkpoint)
    if done != 0:
        return done is not None
    try:
        offset = json.loads((checkpoint.read("offsets/0") or "").splitlines()[2])
        return bool(offset["start"] != offset["partitions"])
    except (IndexError, KeyError, TypeError, ValueError):
        return True  # `Rounds` says what is wrong with it.


def _last_done(checkpoint: Folder) -> int | None:
    numbers = map(whole_number, checkpoint.names("commits"))
    return max((number for number in numbers if number is not None), default=None)


class Rounds:
    """What is in a queue and was not read yet, by a checkpoint.

    Args:
        spark: the session.
        queue: the queue's name.
        checkpoint: the folder of the checkpoint.
        options: of the data source's stream; where to begin is the oldest message if not given.
        messages_max: of one round. Before PySpark 4.2 a round is all there is.

    Raises:
        InvalidInputError: an option has a wrong value.
        QueueNotFoundError: there is no such queue.
    """

    def __init__(
        self,
        spark: SparkSession,
        queue: str,
        checkpoint: Folder,
        options: Mapping[str, str],
        messages_max: int,
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        given = {"startingOffsets": "earliest", **options, "queue": queue, "rangesOnly": "true"}
        if any(name.lower().startswith("starting") for name in options):
            del given["startingOffsets"]
        if ADMITS:
            given["maxOffsetsPerTrigger"] = str(messages_max)
        self._given = given
        self.options = ReadOptions.of(given, "stream")
        self.queue = client_of(self.options.settings).queue(queue)
        partitions_of(self.queue, self.options)

    def pending(self) -> list[Range]:
        """What to read. Asking changes nothing.

        Raises:
            DataLossError: messages are gone that were not read.
        """
        offsets = self.queue.offsets(partitions_of(self.queue, self.options))
        stops = {each.partition: Position(int(each.end), each.end_ordinal) for each in offsets}
        read = self._read()
        starts = starts_of(self.queue, offsets, self.options) if read is None else read
        first = read is None
        found = ranges_between(self.queue, starts, stops, {}, self.options, first=first)
        return [range_ for range_ in found if stops[range_.partition].ordinal > range_.ordinal]

    def _read(self) -> dict[int, Position] | None:
        """Where the last round that is done has ended."""
        done = _last_done(self._checkpoint)
        if done is None:
            return None
        written = self._checkpoint.read(f"offsets/{done}")
        try:
            offset = json.loads((written or "").splitlines()[2])
            return {int(p): Position(*position) for p, position in offset["partitions"].items()}
        except (IndexError, KeyError, TypeError, ValueError) as exc:
            raise InvalidInputError(
                "the checkpoint does not belong to a stream of a queue: give another folder",
                path=self._checkpoint.uri,
            ) from exc

    def run(self, function: Callable[[Round], None], *, follow: bool = False) -> None:
        """Call a function with each round, one after the other, in their order.

        Args:
            function: it does its round wholly, or raises.
            follow: whether to wait for more, until the program is interrupted; otherwise it ends
                with what is there by now.

        Raises:
            HQueueError: what the function raised, or why the queue can't be read.
            JobError: Spark failed, or another run reads by the same checkpoint.
        """
        failed: list[Exception] = []

        def run_round(ranges: DataFrame, number: int) -> None:
            found = [Range(**row.asDict()) for row in ranges.collect()]
            name = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")
            assert name is not None
            messages = sum(range_.messages for range_ in found)
            frame = frame_of(self._spark, self.options, found, WITH_HEADERS)
            try:
                if found:
                    stops = {range_.partition: range_.stop for range_ in found}
                    function(Round(name, number, messages, frame, stops))
            except Exception as exc:
                failed.append(exc)
                raise

        stream = self._spark.readStream.format("hqueue").options(**self._given).load()
        writer = stream.writeStream.foreachBatch(run_round)
        writer = writer.option("checkpointLocation", self._checkpoint.uri)
        if not follow:
            writer = writer.trigger(availableNow=True)
        with translated(failed):
            query = writer.start()
            try:
                query.awaitTermination()
            finally:
                with contextlib.suppress(Py4JError, ConnectionError):  # Spark may have ended.
                    query.stop()
