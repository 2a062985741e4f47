"""The registrations of workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hqueue.errors import (
    HQueueError,
    InvalidInputError,
    RequestRefusedError,
    UnsupportedFormatError,
)
from hqueue.metadata.directory import Directory
from hqueue.metadata.encoding import decode_worker, encode_worker
from hqueue.metadata.paths import Paths
from hqueue.metadata.ports import MetadataStore, Obstacle, Record, Watch
from hqueue.metadata.records import WorkerRecord
from hqueue.metadata.registration import Registration
from hqueue.metadata.steps import OnStore, Work
from hqueue.runtime.clock import Clock
from hqueue.runtime.loop import BackgroundLoop
from hqueue.runtime.stepwise import stepwise

__all__ = ["Workers"]

WORKER_DEPTH = 1


class Workers(OnStore):
    """The registered workers. Thread-safe."""

    def __init__(self, store: MetadataStore, paths: Paths, clock: Clock) -> None:
        super().__init__(store, clock)
        self._paths = paths
        self._present = Directory(store, paths.hosts, WORKER_DEPTH, _decode, "a worker")
        self._registered: dict[str, Registration] = {}

    def register(
        self, worker: WorkerRecord, on_failure: Callable[[HQueueError], None]
    ) -> Registration:
        """Register a worker. Each worker's process needs a name of its own.

        Args:
            on_failure: called if the registration can't be made again after a session was lost.

        Raises:
            RequestRefusedError: another worker of this name is registered.
        """

        def same_address(value: bytes) -> bool:
            try:
                return decode_worker(value, "", worker.name).address == worker.address
            except UnsupportedFormatError:
                return False

        registration = Registration(
            self._store,
            [{self._paths.worker(worker.name): encode_worker(worker)}],
            is_own=same_address,
            on_obstacle=_taken,
            on_failure=on_failure,
            parents=True,
            clock=self._clock,
        )
        registration.begin()
        self._registered[worker.name] = registration
        return registration

    def update(self, worker: WorkerRecord) -> None:
        """Change the record of a worker that this session registered."""
        registration = self._registered.get(worker.name)
        if registration is None:
            raise InvalidInputError(
                "this worker was not registered by this process", worker=worker.name
            )
        registration.replace({self._paths.worker(worker.name): encode_worker(worker)})

    @stepwise
    def list(self) -> Work[Mapping[str, WorkerRecord]]:
        """All registered workers, by name."""
        return (yield from self._present.list())

    def watch(
        self,
        listener: Callable[[Mapping[str, WorkerRecord]], None],
        loop: BackgroundLoop | None = None,
    ) -> Watch:
        """Report the registered workers to a listener, as `MetadataStore.watch`."""
        return self._present.watch(listener, loop)


def _decode(path: str, found: Mapping[str, Record]) -> tuple[str, WorkerRecord]:
    name = path.rpartition("/")[2]
    return name, decode_worker(found[path].value, path, name)


def _taken(obstacle: Obstacle) -> RequestRefusedError:
    return RequestRefusedError(
        "another worker of this name is registered: stop it, or give this one another name",
        path=obstacle.key,
        record=(obstacle.value or b"").decode(errors="replace"),
    )
