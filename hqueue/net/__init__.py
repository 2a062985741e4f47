"""Who is at the other end of a connection, and what hides it from others: Kerberos and TLS, as
layers and handshakes without I/O, and what carries them out over a socket or in an event loop.
"""
