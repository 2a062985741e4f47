"""Share groups: any number of consumers on one partition, each message with a fate of its own.

What a group has of a partition is one record, which every consumer changes by its version: nobody
leads. `window` is that record, and `acquisition` decides what becomes of it; both are pure.
"""
