"""The topics of a run as the servers have them: cursors while it goes on, and all at its end."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

from hqueue import Client, HQueueError
from hqueue.errors import NoTopicPersistenceInfoError

from .topic_history import TOPICS, TopicHistory, TopicRecorder, load_topics, token_of

__all__ = ["CursorWatch", "read_topics"]

EVERY_S = 0.3
WAIT_S = 20.0


class CursorWatch:
    """Writes down every stored cursor that it sees, from its beginning to its end.

    Args:
        client: a client; its session is used by nobody else.
        queue: the queue of the topics.
        path: of the history.
    """

    def __init__(self, client: Client, queue: str, path: Path) -> None:
        self._client = client
        self._queue = queue
        self._recorder = TopicRecorder(path)
        self._known: dict[tuple[str, str], int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cursors", daemon=True)

    def __enter__(self) -> CursorWatch:
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
            except (HQueueError, TimeoutError):
                continue  # ZooKeeper is away.

    def _look(self) -> None:
        with self._client.topic_metadata(self._queue) as metadata:
            for topic in TOPICS:
                there = metadata.subscriptions.read_subscriptions(topic).result(WAIT_S)
                for subscriber, found in there.items():
                    assert found.value.state is not None
                    consumed = int(found.value.state.consumed)
                    if self._known.get((subscriber, topic)) != consumed:
                        self._known[subscriber, topic] = consumed
                        self._recorder.cursor(subscriber, topic, consumed)


def read_topics(client: Client, queue: str, folder: Path) -> TopicHistory:
    """Read all topics, and check all bytes by their ranges; with what all processes wrote down."""
    opened = client.queue(queue)
    final: dict[str, list[tuple[int, str]]] = {}
    ranges = {}
    with client.topic_metadata(queue) as metadata:
        for topic in TOPICS:
            found = metadata.persistence.read_topic_persistence_info(topic).result(WAIT_S)
            if found is not None:
                ranges[topic] = found.value.ranges
    for topic in TOPICS:
        final[topic] = []
        try:
            with opened.scan_topic(topic) as scanner:
                final[topic] = [(int(each.id), token_of(each.value)) for each in scanner]
        except NoTopicPersistenceInfoError:
            continue  # Nobody came to it.
    findings = [
        f"{finding.row}: {finding.problem}"
        for partition in range(opened.partitions)
        for finding in list(opened.verify([partition], ranges=ranges))[-1].findings
    ]
    return load_topics(folder, final, findings)
