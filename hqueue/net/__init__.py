"""Secures connections: TLS contexts made of files, principals made of certificates, a port's guard
and quotas, and the audit; Kerberos, SASL and delegation tokens for clients.
"""
