"""What can be set, and the bounds of everything that can't.

Settings of a connection, where they are found, how an address is written, a queue's attributes,
limits, and how numbers and names are checked. It imports `hqueue.errors` and nothing else of the
library.
"""
