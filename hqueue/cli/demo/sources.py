"""What the demo ships: the lines that the local HBase logs, and the user's files and pipes."""

from __future__ import annotations

import dataclasses
import math
import os
import queue as queues
import re
import select
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hqueue.cli.commands.inputs import open_input
from hqueue.message import Message, partition_of_key
from hqueue.runtime.clock import SYSTEM_CLOCK, Deadline
from hqueue.runtime.threads import start
from hqueue.settings.limits import BATCH_BYTES_MAX, TOPIC_BYTES_MAX

__all__ = ["Item", "Sources", "file_items", "log_items"]

WAITING_MAX = 5_000
READ_BYTES = 65_536
LINES_PER_PARTITION = 1_000

_HEAD = re.compile(r"\d{4}-\d\d-\d\dT[\d:,]+ ([A-Z]+)\s+\[.*?\] ([\w.$]+):")


@dataclasses.dataclass(frozen=True)
class Item:
    """One message to be put, and into which partition."""

    message: Message
    partition: int


def log_items(folder: Path, partitions: int, timeout_s: float) -> Iterator[Item]:
    """All lines of the server's logs, and those it writes until the time is over.

    The topic is the line's level, and the key its logger: the lines of one share a partition, so
    they stay in their order. A header says which process wrote it. A line without a head of its
    own, as of a stack trace, goes with the one above.
    """
    from hqueue.local.logs import follow_lines  # noqa: PLC0415  (only for the demo)

    heads: dict[str, tuple[str, str]] = {}
    for line in follow_lines(folder, last=None, timeout_s=timeout_s):
        head = _HEAD.match(line.text)
        if head is not None:
            heads[line.process] = head[1], head[2]
        level, logger = heads.get(line.process, ("OTHER", line.process))
        key = logger.encode()
        headers = [("process", line.process.encode())]
        message = Message(level, line.text.encode(), key, headers)
        yield Item(message, partition_of_key(key, partitions))


def file_items(name: str, partitions: int, timeout_s: float) -> Iterator[Item]:
    """The lines of a file, or of a pipe until it ends or the time is over.

    The topic is the file's name. Each partition gets a block of lines in turn.

    Raises:
        InvalidInputError: the file can't be read.
    """
    topic = "stdin" if name == "-" else Path(name).name
    topic = topic.encode("utf-8", "replace")[:TOPIC_BYTES_MAX].decode("utf-8", "ignore")
    with open_input(name) as stream:
        endless = not stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
        deadline = Deadline(SYSTEM_CLOCK, timeout_s * 1e3 if endless else math.inf)
        for number, line in enumerate(_lines(stream.fileno(), deadline)):
            yield Item(Message(topic, line), number // LINES_PER_PARTITION % partitions)


def _lines(descriptor: int, deadline: Deadline) -> Iterator[bytes]:
    part = b""
    while not deadline.expired:
        # A wait without an end would not do: select takes no infinity.
        if not select.select([descriptor], [], [], min(deadline.remaining_ms / 1e3, 1.0))[0]:
            continue
        data = os.read(descriptor, READ_BYTES)
        if not data:
            break
        *lines, part = (part + data).split(b"\n")
        yield from lines
        if len(part) > BATCH_BYTES_MAX:
            yield part[:BATCH_BYTES_MAX]
            part = part[BATCH_BYTES_MAX:]
    if part:
        yield part


class Sources:
    """Several sources as one stream of items; a thread reads each.

    Args:
        sources: functions that give items.
    """

    def __init__(self, sources: Sequence[Callable[[], Iterator[Item]]]) -> None:
        self.error: BaseException | None = None
        """Why a source ended early, if one did."""
        self._items: queues.Queue[Item | None] = queues.Queue(WAITING_MAX)
        self._left = len(sources)
        for source in sources:
            start(self._run, source, name="hqueue-demo-source")

    def next(self, timeout_s: float) -> Item | None:
        """The next item; None if there is none in time, or none any more."""
        while self._left:
            try:
                item = self._items.get(timeout=timeout_s)
            except queues.Empty:
                return None
            if item is not None:
                return item
            self._left -= 1
        return None

    @property
    def ended(self) -> bool:
        """Whether all sources have ended and all their items were given."""
        return not self._left

    def _run(self, source: Callable[[], Iterator[Item]]) -> None:
        try:
            for item in source():
                self._items.put(item)
        except BaseException as exc:  # The demo raises it.
            self.error = exc
        finally:
            self._items.put(None)
