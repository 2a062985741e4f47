"""Thrift's protocols, where thriftpy2's own would take an answer for more than it can be."""

from __future__ import annotations

import struct
from typing import Any

from thriftpy2.protocol import TCompactProtocol, binary
from thriftpy2.thrift import TType

__all__ = ["BulkProtocol", "CompactProtocol"]

DEPTH_MAX = 64
_NUMBERS = {
    TType.BOOL: struct.Struct(">?"),
    TType.BYTE: struct.Struct(">b"),
    TType.I16: struct.Struct(">h"),
    TType.I32: struct.Struct(">i"),
    TType.I64: struct.Struct(">q"),
    TType.DOUBLE: struct.Struct(">d"),
}


class CompactProtocol(TCompactProtocol):
    """Refuses values of no type: they have no bytes, so two billion of them could be "skipped"."""

    def skip(self, kind: Any) -> None:
        """Step over a value."""
        if kind == TType.STOP:
            raise ValueError("a value has no type")
        super().skip(kind)  # type: ignore[no-untyped-call]


class BulkProtocol(binary.TBinaryProtocol):
    """The binary protocol over a `BulkTransport`, for thriftpy2's compiled one wants its own.

    It reads by itself: thriftpy2's other one "skips" two billion values of no type as well. These
    are refused, and values of the wrong type.
    """

    def read_struct(self, obj: Any) -> Any:
        """Fill a struct with its fields from the wire."""
        return self._filled(obj, DEPTH_MAX)

    def skip(self, kind: int) -> None:
        """Step over a value."""
        self._skip(kind, DEPTH_MAX)

    def _filled(self, obj: Any, depth: int) -> Any:
        while kind := self._number(TType.BYTE):
            spec = obj.thrift_spec.get(self._number(TType.I16))
            if spec is None:
                self._skip(kind, depth)
                continue
            _check(kind, spec[0])
            setattr(obj, spec[1], self._value(spec[0], spec[2] if len(spec) == 4 else None, depth))
        return obj

    def _value(self, kind: int, inner: Any, depth: int) -> Any:
        """A value of this type; `inner` is what thriftpy2 knows of a container or a struct."""
        if kind in binary.BIN_TYPES:
            return self.trans.read(self._number(TType.I32))
        if kind in _NUMBERS:
            return self._number(kind)
        _check_depth(depth)
        if kind == TType.STRUCT:
            return self._filled(inner(), depth - 1)
        if kind == TType.MAP:
            (key, key_inner), (value, value_inner) = map(_typed, inner)
            _check(self._number(TType.BYTE), key)
            _check(self._number(TType.BYTE), value)
            return {
                self._value(key, key_inner, depth - 1): self._value(value, value_inner, depth - 1)
                for _ in range(self._number(TType.I32))
            }
        item, item_inner = _typed(inner)
        _check(self._number(TType.BYTE), item)
        return [self._value(item, item_inner, depth - 1) for _ in range(self._number(TType.I32))]

    def _skip(self, kind: int, depth: int) -> None:
        if kind in binary.BIN_TYPES:
            self.trans.read(self._number(TType.I32))
        elif kind in _NUMBERS:
            self._number(kind)
        elif kind == TType.STRUCT:
            _check_depth(depth)
            while field := self._number(TType.BYTE):
                self._number(TType.I16)
                self._skip(field, depth - 1)
        elif kind in (TType.LIST, TType.SET, TType.MAP):
            _check_depth(depth)
            kinds = [self._number(TType.BYTE) for _ in range(2 if kind == TType.MAP else 1)]
            for _ in range(self._number(TType.I32)):
                for item in kinds:
                    self._skip(item, depth - 1)
        else:
            raise ValueError("a value has no type")

    def _number(self, kind: int) -> Any:
        packed = _NUMBERS[kind]
        return packed.unpack(self.trans.read(packed.size))[0]


def _typed(spec: Any) -> tuple[int, Any]:
    return spec if isinstance(spec, tuple) else (spec, None)


def _check(found: int, expected: int) -> None:
    if found != expected and not (found in binary.BIN_TYPES and expected in binary.BIN_TYPES):
        raise ValueError("a value has an unexpected type")


def _check_depth(depth: int) -> None:
    if depth <= 0:
        raise RecursionError("the answer is nested too deeply")
