"""A local server that is harmed below its own processes: its clock, its disk, its files.

``make test-harmed`` runs these tests. Each starts a server of its own. They take root for disks of
a size, and libfaketime (Debian's `faketime`) for clocks.
"""
