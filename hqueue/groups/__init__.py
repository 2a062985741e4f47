"""Consumer groups (seed 004): members that share the partitions of queues among them.

It imports `hqueue.consume`, `hqueue.metadata` and what is below them.
"""
