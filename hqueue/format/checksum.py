"""CRC-32, the checksum of headers and bodies: ten times faster where ISA-L is installed."""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:  # There are no wheels of it for some machines.
    from zlib import crc32

__all__ = ["crc32"]
