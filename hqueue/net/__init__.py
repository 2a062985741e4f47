"""TLS at HQueue's own ports: contexts made of files, principals made of certificates, the guard and
the quotas of a port, and the audit.
"""
