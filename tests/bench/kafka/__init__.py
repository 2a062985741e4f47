"""Side by side with Kafka: the same work through this library and through Kafka's from Python.

One broker and the local HBase run on the same machine, and rounds take turns: one of the two works
while the other waits. ``make bench-kafka`` runs it all and writes ``docs/benchmarks.md``.
"""
