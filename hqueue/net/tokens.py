"""Reads and writes delegation tokens, which HBase gives to a client that proved who it is, so that
others can prove themselves in its name; and reads Hadoop's token files.

A token file begins with ``HDTS`` and its version. Version 0 is what Hadoop's writables write, with
Hadoop's own integers of variable length for counts and lengths:

```
count of tokens; for each: its alias, identifier, password, kind and service, each with its length
count of other secrets; for each: its alias and its bytes
```

Version 1 is a message of protobuf with its length before it: field 1, repeated, has for each token
the alias (1) and the token (2): identifier (1), password (2), kind (3), service (4).

An identifier of HBase's is a length (4 bytes, big-endian) and a message of protobuf: the principal
(2), and in milliseconds since the epoch when the token was issued (4) and when it expires (5).
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Iterable, Mapping
from typing import NoReturn

from hqueue.errors import InvalidInputError
from hqueue.net.refusals import RefusedError

__all__ = ["DelegationToken", "HeldTokens"]

KIND = "HBASE_AUTH_TOKEN"
_MAGIC = b"HDTS"
_WRITABLE, _PROTOBUF = 0, 1
_PRINCIPAL, _ISSUED, _EXPIRES = 2, 4, 5
FILE_BYTES_MAX = 64 * 1024 * 1024


@dataclasses.dataclass(frozen=True, repr=False)
class DelegationToken:
    """Authenticates a process that has no Kerberos key or ticket to HBase, in the name of the
    principal that got the token. It is a secret until it expires: by HBase's default, after seven
    days.

    Its repr has no secret, and it can't be pickled: use `to_bytes` to hand it over.

    Args:
        identifier: identifies the token to HBase.
        password: the secret.
        service: the ID of the HBase cluster that it is for.
    """

    identifier: bytes
    password: bytes
    service: str

    @classmethod
    def from_bytes(cls, data: bytes) -> DelegationToken:
        """Read what `to_bytes` wrote, or the only token for HBase in Hadoop's token file.

        Raises:
            InvalidInputError: the bytes are neither. The error shows none of them.
        """
        try:
            (token,) = read_tokens(data)
        except ValueError:
            raise InvalidInputError(
                "these are not the bytes of a delegation token for HBase"
            ) from None
        return token

    def to_bytes(self) -> bytes:
        """Write the token as Hadoop's token file, with the secret: for `from_bytes`, or for a file
        that nobody else may read (``hbase_token_file``).
        """
        service = self.service.encode()
        fields = (service, self.identifier, self.password, KIND.encode(), service)
        written = b"".join(_written(len(each)) + each for each in fields)
        return _MAGIC + bytes((_WRITABLE, 1)) + written + b"\0"

    @property
    def principal(self) -> str:
        """The principal that the token stands for; empty if that can't be read."""
        value = self._read.get(_PRINCIPAL, b"")
        return value.decode(errors="replace") if isinstance(value, bytes) else ""

    @property
    def issued_ms(self) -> int:
        """When it was issued, in milliseconds since the epoch by the clock of a server; 0 if that
        can't be read.
        """
        return self._time(_ISSUED)

    @property
    def expires_ms(self) -> int:
        """When it expires. Like `issued_ms`."""
        return self._time(_EXPIRES)

    def _time(self, field: int) -> int:
        value = self._read.get(field, 0)
        return value if isinstance(value, int) else 0

    @functools.cached_property
    def _read(self) -> Mapping[int, int | bytes]:
        try:
            return dict(_fields(self.identifier[4:]))
        except ValueError:
            return {}

    def __repr__(self) -> str:
        expires = "unknown"
        if 0 < self.expires_ms < 1 << 47:
            moment = datetime.datetime.fromtimestamp(self.expires_ms // 1000, datetime.timezone.utc)
            expires = moment.isoformat()
        return (
            f"DelegationToken(principal={self.principal!r}, service={self.service!r}, "
            f"expires={expires!r})"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a delegation token is a secret and is not pickled: hand over its to_bytes")


class HeldTokens:
    """Holds a client's tokens: those that it was given, else those of a file, which it reads for
    each connection. Thread-safe.

    Args:
        file: Hadoop's token file; None for none.
    """

    def __init__(self, file: str | None = None) -> None:
        self._file = file
        self._given: dict[str, DelegationToken] = {}
        """By service. A replaced dict, never a changed one."""

    def use(self, token: DelegationToken) -> None:
        """Use a token for connections from now on, unless the one that is used for this cluster and
        in this name expires later.
        """
        used = self._given.get(token.service)
        is_same = used is not None and used.principal == token.principal
        if used is None or not is_same or token.expires_ms >= used.expires_ms:
            self._given = {**self._given, token.service: token}

    def all(self) -> list[DelegationToken]:
        """One for each cluster. Reads the file: it may block for a moment.

        Raises:
            RefusedError: the file can't be read, or is not a token file.
        """
        if self._given or not self._file:
            return [*self._given.values()]
        try:
            with open(self._file, "rb") as file:
                found = read_tokens(file.read(FILE_BYTES_MAX))
        except (OSError, ValueError) as exc:
            # What was read stays out of the error.
            reason = exc.strerror if isinstance(exc, OSError) else str(exc)
            raise RefusedError(
                "the file of delegation tokens can't be used: check hbase_token_file, or "
                "HADOOP_TOKEN_FILE_LOCATION in this process's environment",
                file=self._file,
                reason=reason,
            ) from None
        newest = {token.service: token for token in sorted(found, key=lambda t: t.expires_ms)}
        return [*newest.values()]


def read_tokens(data: bytes) -> list[DelegationToken]:
    """Read the tokens for HBase in a token file, and leave out those of other kinds.

    Raises:
        ValueError: the data is not a token file.
    """
    if not data.startswith(_MAGIC) or len(data) <= len(_MAGIC):
        raise ValueError("this is not a token file of Hadoop")
    version, rest = data[len(_MAGIC)], data[len(_MAGIC) + 1 :]
    if version == _WRITABLE:
        found: Iterable[tuple[bytes, ...]] = _Writable(rest).tokens()
    elif version == _PROTOBUF:
        found = _messages(rest)
    else:
        raise ValueError("this token file has an unknown version")
    tokens = []
    for identifier, password, kind, service in found:
        if kind == KIND.encode():
            # A server makes room for as many bytes as an identifier says, and may end by that.
            if int.from_bytes(identifier[:4], "big") != len(identifier) - 4:
                raise ValueError("the identifier of a token for HBase is malformed")
            tokens.append(DelegationToken(identifier, password, service.decode(errors="replace")))
    return tokens


class _Writable:
    """A token file as Hadoop's writables write it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def tokens(self) -> list[tuple[bytes, ...]]:
        found = []
        for _ in range(self._number()):
            _, *token = (self._take(self._number()) for _ in range(5))
            found.append(tuple(token))
        return found

    def _number(self) -> int:
        """A number: one byte, or one that says how many follow, 143 for one and 136 for eight.
        Those of negative numbers are others.
        """
        (first,) = self._take(1)
        if first < 128:
            return first
        if not 136 <= first <= 143:
            raise ValueError("the token file is malformed")
        return int.from_bytes(self._take(144 - first), "big")

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise ValueError("the token file is cut off")
        self._at += count
        return taken


def _written(number: int) -> bytes:
    """A length as Hadoop's writables write it."""
    if number < 128:
        return bytes((number,))
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes((144 - len(data),)) + data


def _messages(data: bytes) -> Iterable[tuple[bytes, ...]]:
    """The tokens of a token file in protobuf."""
    size, at = _varint(data, 0)
    if len(data) - at < size:
        raise ValueError("the token file is cut off")
    for number, entry in _fields(data[at : at + size]):
        if number == 1:
            token = dict(_fields(_bytes(dict(_fields(_bytes(entry))).get(2))))
            yield tuple(_bytes(token.get(field)) for field in (1, 2, 3, 4))


def _bytes(value: int | bytes | None) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("the token file is malformed")
    return value


def _fields(data: bytes) -> Iterable[tuple[int, int | bytes]]:
    """The fields of a message of protobuf by their numbers, in their order."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            size, at = _varint(data, at)
            if len(data) - at < size:
                raise ValueError("a field is cut off")
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError("a field has an unknown type")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number is cut off")
