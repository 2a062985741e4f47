"""One complete handle on a queue's log, for all that stands on it.

It puts together the part that writes, of `hqueue.produce`, and the part that reads, of
`hqueue.consume`. What needs only one of them takes that one. `Cluster` opens such handles by name,
and `QueueAdministration` creates, alters and deletes queues.
"""

from hqueue.handle.administration import QueueAdministration
from hqueue.handle.cluster import Cluster
from hqueue.handle.queue_log import QueueLog

__all__ = ["Cluster", "QueueAdministration", "QueueLog"]
