"""Consumer groups (seed 004): members that share the partitions of queues among them.

It stands on `hqueue.metadata`, as push does; the log knows nothing of groups.
"""
