"""Thrift, below every service: the server, connections, calls as bytes, and the IDL's files.

It knows none of the services, and imports `hqueue.runtime` and what is below it.
"""
