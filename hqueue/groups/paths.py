"""Where a group lies: the keys of records and registrations, which are ZooKeeper's paths.

    <root>/consumers/<group>/ids/<consumer>                         ephemeral: a member
    <root>/consumers/<group>/owners/<queue>/<broker>-<partition>    ephemeral: its consumer
    <root>/consumers/<group>/offsets/<queue>/<broker>-<partition>   the next ID, and its writer
    <root>/consumers/<group>/plan/<broker>                          the plan of the assignment
    <root>/consumers/<group>/shares/<queue>/<broker>-<partition>    a share group's record

The first three are those of Kafka's first consumers, whose topic is a queue here, and whose broker
is an HQueue cluster by its logical ID. Characters in the names of groups and consumers that a path
can't have are escaped as in URLs. `hqueue.metadata.encoding` describes the records.
"""

from __future__ import annotations

import urllib.parse

from hqueue.errors import InvalidInputError
from hqueue.metadata import PartitionKey
from hqueue.metadata.paths import partition_number
from hqueue.settings.attributes import check_queue_name
from hqueue.settings.limits import NAME_LENGTH_MAX

__all__ = ["GroupPaths", "group_name", "groups_below"]


def groups_below(root: str) -> str:
    """The path below which all groups lie."""
    return f"{root}/consumers"


def group_name(segment: str) -> str | None:
    """The name of the group with this segment; None for a segment that HQueue did not make."""
    name = urllib.parse.unquote(segment)
    try:
        return name if _segment(name) == segment else None
    except InvalidInputError:
        return None


class GroupPaths:
    """The paths of one group.

    Args:
        root: the path that all keys begin with.
        group: the group's name: 1 to 200 characters of any kind.
        broker: the logical ID of the HQueue cluster.

    Raises:
        InvalidInputError: the name is empty or too long.
    """

    def __init__(self, root: str, group: str, broker: int = 0) -> None:
        self.group = group
        self.top = f"{groups_below(root)}/{_segment(group)}"
        self.ids = f"{self.top}/ids"
        self.owners = f"{self.top}/owners"
        self.offsets = f"{self.top}/offsets"
        self.shares = f"{self.top}/shares"
        self.plans = f"{self.top}/plan"
        self.plan = f"{self.plans}/{broker:d}"
        self._broker = broker

    def member(self, consumer: str) -> str:
        return f"{self.ids}/{_segment(consumer)}"

    def consumer(self, path: str) -> str:
        """The ID of the consumer whose registration has this path."""
        return urllib.parse.unquote(path.rpartition("/")[2])

    def owner(self, key: PartitionKey) -> str:
        return f"{self.owners}/{self._below(key)}"

    def offset(self, key: PartitionKey) -> str:
        return f"{self.offsets}/{self._below(key)}"

    def share(self, key: PartitionKey) -> str:
        return f"{self.shares}/{self._below(key)}"

    def offsets_of(self, queue: str) -> str:
        """The path below which the offsets of a queue lie."""
        return f"{self.offsets}/{check_queue_name(queue)}"

    def shares_of(self, queue: str) -> str:
        """The path below which a share group's records of a queue lie."""
        return f"{self.shares}/{check_queue_name(queue)}"

    def partition_key(self, path: str) -> PartitionKey | None:
        """The partition of a claim, an offset or a share group's record; None for those of another
        broker, and for a path that HQueue did not make.
        """
        queue, name = path.split("/")[-2:]
        broker, _, number = name.rpartition("-")
        partition = partition_number(number)
        if partition is None or broker != str(self._broker):
            return None
        return PartitionKey(queue, partition)

    def _below(self, key: PartitionKey) -> str:
        return f"{check_queue_name(key.queue)}/{self._broker:d}-{key.partition:d}"


def _segment(name: object) -> str:
    """A name as a segment of a key.

    Raises:
        InvalidInputError: the name is not a string, is empty or too long, or can't be encoded as
            UTF-8.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise InvalidInputError(
            "the name of a group or a consumer must be a string of 1 to 200 characters", name=name
        )
    try:
        escaped = urllib.parse.quote(name, safe=":")
    except UnicodeEncodeError as exc:
        raise InvalidInputError("the name can't be encoded as UTF-8", name=name) from exc
    return escaped.replace(".", "%2E") if name in (".", "..") else escaped
