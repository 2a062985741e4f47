"""The benchmarks: ratios of what the library does to what the servers can do, from one run.

What is compared runs in turns, a round each, so that a machine that gets slower or faster
changes both; the median of the rounds' ratios counts. ``make bench`` runs them all and writes
``docs/benchmarks.md``.
"""
