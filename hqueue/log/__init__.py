"""The partition log: a chain of batches, each one row, each won by one conditional put.

A batch covers the IDs ``[base, end)`` and lies at its *slot*, the end of the batch before it. So

- one writer wins a slot, and there are no holes: the chain is the lock;
- the IDs of a batch lie in ``[its row key, the next row key)``, and a row never appears behind
  a reader that has read the chain up to its own position;
- the header counts the messages before it (`ordinal`), so that a lost one is seen.

`PartitionWriter` appends and collects, `PartitionReader` reads. Both are pure protocol over the
ports of `hqueue.log.ports`, with time passed in: `tests/model` runs them over a model store through
every order of lost requests, lost answers, late duplicates and crashes.
"""

from hqueue.log.attempt import Appended
from hqueue.log.reader import Batch, PartitionReader
from hqueue.log.tail import LogPosition
from hqueue.log.writer import PartitionWriter

__all__ = ["Appended", "Batch", "LogPosition", "PartitionReader", "PartitionWriter"]
