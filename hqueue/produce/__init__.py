"""Putting messages in: the producer, a process's writers, and what they do in passing.

It knows stores by `hqueue.log.ports`, and imports `hqueue.log`, `hqueue.metadata`, `hqueue.format`
and what is below them.
"""
