"""Putting messages in: the producer, a process's writers, and what they do in passing.

It knows stores by `hqueue.log.ports` and `hqueue.log.table_ports` alone.
"""
