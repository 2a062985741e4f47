"""HQueue's Thrift API, for clients with nothing but the IDL.

It uses what every user of the library has, and `hqueue_workers.node`.
"""
