"""Thrift, below every service that is served or called: the server, and the IDL's files.

It knows none of the services, and imports `hqueue.runtime` and what is below it.
"""
