"""How processors bring one queue into another, each result once, explored: every order of what they
do, of their deaths, of take-overs while one stands still, and of resets of the group's offset.

`world` is a partition of the source, the group's offset, the target, and processors, which cut and
hold as those of the library do; the explorer is that of groups; the tests take each rule out once.
"""
