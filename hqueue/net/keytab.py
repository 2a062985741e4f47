"""Reads which principals have keys in a keytab, and whether a file is one.

A keytab is 05 02, and entries: a length (4 bytes, big-endian; a negative one is that of a hole),
the number of the name's components (2 bytes), the realm and the components, each with its length (2
bytes), and what is left out here: type and time, version, the key.
"""

from __future__ import annotations

import struct
from pathlib import Path

from hqueue.net.refusals import RefusedError

__all__ = ["check_keytab", "principals_in"]

_VERSION = b"\x05\x02"
_KEYTABS = (_VERSION, b"\x05\x01")
"""What a keytab begins with: Kerberos also reads the older version, whose numbers are in the byte
order of the machine that wrote it."""

_SIZE = struct.Struct(">i")
_COUNT = struct.Struct(">H")


def check_keytab(path: str, setting: str) -> None:
    """Check that a keytab can be read.

    Args:
        path: the file.
        setting: the setting that names it.

    Raises:
        RefusedError: it can't be read, or is no keytab.
    """
    try:
        with open(path, "rb") as opened:
            begins = opened.read(len(_VERSION))
    except OSError as exc:
        raise RefusedError(
            f"{setting} can't be read: check that the file exists, and that this user may read it",
            keytab=path,
        ) from exc
    if begins not in _KEYTABS:
        raise RefusedError(
            f"{setting} is not a keytab, which begins with the bytes 05 02: check which file it "
            "names, or get a new one from the KDC",
            keytab=path,
        )


def principals_in(path: str) -> list[str]:
    """List the principals whose keys a keytab has, as ``name@REALM``, each once.

    Raises:
        OSError: the file can't be read.
        ValueError: it is not a keytab.
    """
    data = Path(path).read_bytes()
    if not data.startswith(_VERSION):
        raise ValueError("this is not a keytab of version 2")
    found: dict[str, None] = {}
    at = len(_VERSION)
    try:
        while at + _SIZE.size <= len(data):
            (size,) = _SIZE.unpack_from(data, at)
            at += _SIZE.size
            if size > 0:
                found[_principal(data[at : at + size])] = None
            elif size == 0:
                break
            at += abs(size)
    except (struct.error, UnicodeDecodeError) as exc:
        raise ValueError("the keytab is cut off") from exc
    return list(found)


def _principal(entry: bytes) -> str:
    (components,) = _COUNT.unpack_from(entry, 0)
    at = _COUNT.size
    texts = []
    for _ in range(1 + components):
        (size,) = _COUNT.unpack_from(entry, at)
        at += _COUNT.size
        if at + size > len(entry):
            raise struct.error("a text is cut off")
        texts.append(entry[at : at + size].decode())
        at += size
    realm, *names = texts
    return f"{'/'.join(names)}@{realm}"
