"""Push: reading partitions, and calling their subscribers until they have taken each message.

It imports `hqueue_workers.node`; `hqueue_workers.worker` puts both together.
"""
