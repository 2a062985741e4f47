"""Where everything lies: the keys of records and registrations, which are ZooKeeper's paths.

    <root>/queues/<queue>/<partition>/<subscriber>            the checkpoint
    <root>/queues/<queue>/<partition>/<subscriber>/topics     ephemeral: what is wanted, and how
    <root>/queues/<queue>/<partition>/<subscriber>/address    ephemeral: where it listens
    <root>/hosts/<worker>                                     ephemeral: a worker
    <root>/owners/<queue>/<partition>                         ephemeral: which worker serves it
    <root>/secrets/appends                                    what notifications are signed with
    <root>/access/rules                                       who may do what
    <root>/brokers/ids/<broker>                               ephemeral: an HQueue cluster
    <root>/brokers/topics/<queue>/<broker>                    ephemeral: its partitions of a queue
    <root>/delays/<queue>/<partition>/<subscriber>/<name>     messages that wait for their time
    <root>/subscribers/<queue>/consumers/<subscriber>         its members, if it has several: as
                                                              those of a consumer group

The first three are those of Alibaba's HQueue, the brokers' those of Kafka's first consumers.
`hqueue.metadata.encoding` says what is in them.
"""

from __future__ import annotations

from hqueue.metadata.records import PartitionKey, SubscriptionKey, check_name
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.limits import PARTITIONS_MAX
from hqueue.settings.numbers import is_whole, whole_number

__all__ = ["ADDRESS", "TOPICS", "Paths", "partition_number"]

ADDRESS = "address"
TOPICS = "topics"


class Paths:
    """The paths below a root.

    Raises:
        InvalidInputError: a name could not be a segment of a key.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.queues = f"{root}/queues"
        self.hosts = f"{root}/hosts"
        self.owners = f"{root}/owners"
        self.delays = f"{root}/delays"
        self.secrets = f"{root}/secrets"
        self.append_keys = f"{self.secrets}/appends"
        self.access = f"{root}/access"
        self.access_rules = f"{self.access}/rules"
        self.brokers = f"{root}/brokers/ids"
        self.broker_queues = f"{root}/brokers/topics"

    def queue(self, queue: str) -> str:
        return f"{self.queues}/{check_queue_name(queue)}"

    def subscriber(self, key: SubscriptionKey) -> str:
        return f"{self.queue(key.queue)}/{key.partition:d}/{check_name(key.subscriber)}"

    def address(self, key: SubscriptionKey) -> str:
        return f"{self.subscriber(key)}/{ADDRESS}"

    def topics(self, key: SubscriptionKey) -> str:
        return f"{self.subscriber(key)}/{TOPICS}"

    def delays_of(self, queue: str) -> str:
        """The path below which the records of a queue's delayed messages lie."""
        return f"{self.delays}/{check_queue_name(queue)}"

    def subscriber_delays(self, key: SubscriptionKey) -> str:
        """The path below which those of one subscriber in one partition lie."""
        return f"{self.delays_of(key.queue)}/{key.partition:d}/{check_name(key.subscriber)}"

    def members(self, queue: str) -> str:
        """The path below which the groups lie that a queue's shared subscribers form."""
        return f"{self.root}/subscribers/{check_queue_name(queue)}"

    def worker(self, name: str) -> str:
        return f"{self.hosts}/{check_name(name)}"

    def owner(self, key: PartitionKey) -> str:
        return f"{self.owners}/{check_queue_name(key.queue)}/{key.partition:d}"

    def broker(self, broker: int) -> str:
        return f"{self.brokers}/{broker:d}"

    def broker_queue(self, queue: str, broker: int) -> str:
        return f"{self.broker_queues}/{check_queue_name(queue)}/{broker:d}"

    def subscription_key(self, path: str) -> SubscriptionKey | None:
        """Whose checkpoint this is, or is below; None for a path that hqueue did not make."""
        parts = path[len(self.queues) + 1 :].split("/")
        if len(parts) < 3 or (partition := partition_number(parts[1])) is None:
            return None
        return SubscriptionKey(parts[0], partition, parts[2])

    def partition_key(self, path: str) -> PartitionKey | None:
        """Which partition a claim is of; None for a path that hqueue did not make."""
        queue, _, number = path[len(self.owners) + 1 :].partition("/")
        partition = partition_number(number)
        return None if partition is None else PartitionKey(queue, partition)


def partition_number(name: str) -> int | None:
    """The partition that a segment names, if it does."""
    number = whole_number(name)
    return number if is_whole(number, 0, PARTITIONS_MAX - 1) else None
