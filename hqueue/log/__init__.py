"""The partition log: a chain of batches, each one row, each won by one conditional put.

A batch covers the IDs ``[base, end)`` and lies at its *slot*, the end of the batch before it. So

- one writer wins a slot, and there are no holes: the chain is the lock;
- the IDs of a batch lie in ``[its row key, the next row key)``, and a row never appears behind
  a reader that has read the chain up to its own position;
- the header counts the messages before it (`ordinal`), so that a lost one is seen.

`PartitionWriter` appends and collects, `PartitionCursor` reads. Both are pure protocol: they decide
in steps that ask for the requests of `hqueue.log.ports`, with time passed in. `tests/model` drives
the same steps over a model store, through every order of lost requests, lost answers, late
duplicates and crashes. `PartitionReader` is a cursor that is driven in the caller's thread.
"""

from hqueue.log.attempt import Appended
from hqueue.log.cursor import PartitionCursor
from hqueue.log.reader import PartitionReader
from hqueue.log.standing import Batch
from hqueue.log.tail import LogPosition
from hqueue.log.writer import PartitionWriter

__all__ = [
    "Appended",
    "Batch",
    "LogPosition",
    "PartitionCursor",
    "PartitionReader",
    "PartitionWriter",
]
