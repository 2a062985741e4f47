"""Workers: the process that delivers partitions to their subscribers, and serves the Thrift API."""

from hqueue_workers.node.settings import WorkerSettings
from hqueue_workers.worker import Worker

__all__ = ["Worker", "WorkerSettings"]
