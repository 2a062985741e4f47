"""The process: its settings, whether it may act, which partitions are its own, what it shows.

It knows nothing of what it serves: `hqueue_workers.delivery` imports this, and never the reverse.
"""
