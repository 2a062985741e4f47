"""How topics' metadata scales: a million topics on HBase, and on ZooKeeper as many as it bears.

``make bench-metadata`` measures, and writes its part of ``docs/benchmarks.md``.
"""
