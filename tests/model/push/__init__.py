"""How members of one subscriber share a partition, explored: every order of what they, workers and
the service do, see late, and suffer.

`world` is a partition, its members and a worker; the explorer is that of groups; the tests take
each rule out once.
"""
