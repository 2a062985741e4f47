"""TLS at HQueue's own ports: contexts made of files, principals made of certificates, the guard of
a port, and the audit.
"""
