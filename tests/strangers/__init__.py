"""Strangers at the ports: ``python -m tests.strangers --seconds 180``.

Each role is served by a process of its own, over stores in memory: what is tried is what bytes
alone can do at its ports. Another process attacks them, one after the other, each with everything
at once; beside it an honest caller calls as before. All of it is on the loopback, and bounded in
number.
"""
