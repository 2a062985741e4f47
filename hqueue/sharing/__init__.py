"""Share groups: any number of consumers read one partition, and each message has its own fate.

A group has one record for each partition. Every consumer changes the record by compare-and-set of
its version, so no consumer has to lead. `window` is that record, and `acquisition` decides how it
changes; both are pure.
"""
