"""HQueue's Thrift API (seed 001, section 4.5), for clients with nothing but the IDL.

It uses what every user of the library has, and `hqueue_workers.node`.
"""
