"""Looking at the subscribers' checkpoints while a run goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from hqueue import Client, HQueueError

from .history import Recorder

__all__ = ["CheckpointWatch"]

EVERY_S = 0.2


class CheckpointWatch:
    """Writes down every change of a checkpoint that it sees, from its beginning to its end.

    Args:
        client: a client; its session is used by nobody else.
        queue: the queue.
        path: of the history.
    """

    def __init__(self, client: Client, queue: str, path: Path) -> None:
        self._coordination = client.coordination
        self._queue = queue
        self._recorder = Recorder(path)
        self._known: dict[tuple[str, int], int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def __enter__(self) -> CheckpointWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_S):
            try:
                self._look()
            except HQueueError:
                continue  # ZooKeeper is away.
        try:
            self._look()
        except HQueueError as exc:
            self._recorder.broken(f"the checkpoints at the end can't be read: {exc}")

    def _look(self) -> None:
        keys = self._coordination.subscriptions.list(self._queue)
        for key, checkpoint in self._coordination.checkpoints.read_many(keys).items():
            subscription = (key.subscriber, key.partition)
            if self._known.get(subscription) != int(checkpoint.next):
                self._known[subscription] = int(checkpoint.next)
                self._recorder.checkpoint(*subscription, int(checkpoint.next))
