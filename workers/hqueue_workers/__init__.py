"""Push delivery: the process that reads partitions and calls their subscribers."""

from hqueue_workers.node.settings import WorkerSettings
from hqueue_workers.worker import Worker

__all__ = ["Worker", "WorkerSettings"]
