"""Keytabs for tests that need no key that a KDC knows."""

from __future__ import annotations

import struct

__all__ = ["keytab"]

AES256 = 18


def keytab(principal: str, key: bytes = bytes(32)) -> bytes:
    """The bytes of a keytab with one key, of ``name@REALM``."""
    name, realm = principal.split("@")
    components = name.split("/")
    entry = struct.pack(">H", len(components)) + _counted(realm.encode())
    entry += b"".join(_counted(component.encode()) for component in components)
    entry += struct.pack(">IIB", 1, 0, 1)  # The name's type, the time, the key's version.
    entry += struct.pack(">H", AES256) + _counted(key)
    return b"\x05\x02" + struct.pack(">i", len(entry)) + entry


def _counted(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data
