"""Consumer groups: members that share the partitions of queues among them.

It stands on the complete handle and on `hqueue.metadata`, as push does; the log knows nothing of
groups. `hqueue.consumer` is its public face.
"""
