"""Reading: scanners, prefetching and following, and batches as messages or as columns.

It knows stores by `hqueue.log.ports`, and imports `hqueue.log`, `hqueue.format` and what is below
them.
"""
