"""Shows the demo's progress on stderr."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING

from hqueue.cli.exits import say
from hqueue.cli.progress import display
from hqueue.errors import HQueueError
from hqueue.runtime.threads import start
from hqueue.runtime.waiting import Event
from hqueue.texts.shown import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from hqueue.cli.demo.tally import Reading, Tally
    from hqueue.message import ReceivedMessage
    from hqueue.message_id import MessageID
    from hqueue.queue import Queue

__all__ = ["Watch"]

EVERY_S = 0.25
LINES_MAX = 24
VALUE_SHOWN = 60


class Watch:
    """Looks at the put and the followed messages now and then, from a thread of its own.

    It shows a message that was just read or delivered, and how far the follower is behind: the
    messages that the partitions' ordinals count, less those it has read.
    """

    def __init__(self, queue: Queue, put: Tally, follower: Reading, delivered: Reading) -> None:
        self.lag_max = 0
        self._queue = queue
        self._put = put
        self._follower = follower
        self._delivered = delivered
        self._lines = LINES_MAX
        self._shown: dict[str, MessageID | None] = {"read": None, "delivered": None}
        self._ended = Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watch:
        self._thread = start(self._run, name="hqueue-watch")
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        if not sys.stderr.isatty():
            self._look(say, lambda _text: None)
            return
        with display("SpinnerColumn", "{task.description}", "TimeElapsedColumn") as bar:
            task = bar.add_task("", total=None)
            self._look(
                lambda text: bar.console.print(text, markup=False, highlight=False, no_wrap=True),
                lambda text: bar.update(task, description=text),
            )

    def _look(self, show: Callable[[str], object], update: Callable[[str], object]) -> None:
        while True:
            ended = self._ended.wait(EVERY_S)
            lag = 0
            with contextlib.suppress(HQueueError):  # The demo itself meets what stays wrong.
                written = sum(each.count for each in self._queue.offsets())
                lag = max(0, written - self._follower.tally.total)
                self.lag_max = max(self.lag_max, lag)
            update(
                f"put {self._put.total:,}, read {self._follower.tally.total:,}, "
                f"delivered {self._delivered.tally.total:,}, lag {lag:,}"
            )
            for how, reading in (("read", self._follower), ("delivered", self._delivered)):
                message = reading.newest
                if message is not None and message.id != self._shown[how] and self._lines > 0:
                    self._shown[how] = message.id
                    self._lines -= 1
                    show(_line(how, message, reading.newest_age_ms))
            if ended:
                return


def _line(how: str, message: ReceivedMessage, age_ms: int) -> str:
    value = printable(message.value)
    short = value if len(value) <= VALUE_SHOWN else value[: VALUE_SHOWN - 1] + "…"
    where = f"{message.partition:2}  {message.topic:5}"
    return f"  {how:9} {age_ms:4} ms after it was put  {where}  {short}"
