"""Reading: scanners, prefetching and following, and batches as messages or as columns.

It knows stores by `hqueue.log.ports` and `hqueue.log.table_ports` alone.
"""
