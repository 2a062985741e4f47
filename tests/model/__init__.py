"""The protocol of the log, explored: every order of faults that the stated bounds allow.

`store` is HBase as the protocol sees it, `world` runs writers, readers and the others over it and
says at each step what could happen next, `explorer` tries that out, `checker` judges, `scenarios`
holds the bounds of each exploration and `mutants` the rules of the protocol, each taken out once.
"""
