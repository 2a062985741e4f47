"""A client made with Apache Thrift's own library, of nothing but an IDL.

Apache Thrift's compiler would write the same classes into files: structs with a `thrift_spec`, and
a client with a method for each call. Here they are made when the IDL is read. What goes over the
wire is made and read by Apache Thrift's library alone.
"""

from __future__ import annotations

import functools
import types
from pathlib import Path
from typing import Any

import thriftpy2
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport
from thriftpy2.thrift import TException as DeclaredException
from thriftpy2.thrift import TPayload

__all__ = ["API", "HUB", "ApacheClient", "apache_module"]

IDLS = Path(__file__).parents[2] / "thrift"
API, HUB = "hqueue", "hub"
"""The IDLs that there are clients of."""
BINARY = 18
"""What the IDL's reader calls a text that is bytes."""


def apache_module(idl: str = API) -> Any:
    """Everything that an IDL declares, as classes of Apache Thrift."""
    return _read(idl)[0]


class ApacheClient:
    """A connection. Its methods are those of the IDL's service."""

    def __init__(self, host: str, port: int, timeout_s: float = 60, idl: str = API) -> None:
        self._calls = _read(idl)[1]
        self.address = host, port
        socket = TSocket(host, port)
        socket.setTimeout(timeout_s * 1e3)
        self._transport = TBufferedTransport(socket)
        self._transport.open()
        self._protocol = TBinaryProtocol(self._transport)

    def __enter__(self) -> ApacheClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self._transport.close()

    def __getattr__(self, method: str) -> Any:
        if method not in self._calls:
            raise AttributeError(method)
        return lambda *given: self.call(method, *given)

    def call(self, method: str, *given: Any, seqid: int = 1) -> Any:
        """Call a method, with its arguments in order; those that are None are left out."""
        arguments, answer = self._calls[method]
        protocol = self._protocol
        protocol.writeMessageBegin(method, TMessageType.CALL, seqid)
        names = [spec[2] for spec in arguments.thrift_spec if spec]
        protocol.writeStruct(
            arguments(**dict(zip(names, given, strict=True))), arguments.thrift_spec
        )
        protocol.writeMessageEnd()
        self._transport.flush()
        _, kind, _ = protocol.readMessageBegin()
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            failure.read(protocol)
            protocol.readMessageEnd()
            raise failure
        result = answer()
        protocol.readStruct(result, answer.thrift_spec)
        protocol.readMessageEnd()
        for spec in answer.thrift_spec:
            value = getattr(result, spec[2]) if spec else None
            if value is not None and spec[0] == 0:
                return value
            if value is not None:
                raise value
        return None


def _class_of(payload: Any, known: dict[str, Any]) -> Any:
    """A struct or an exception of the IDL as a class of Apache Thrift."""
    name = payload.__name__
    if name in known:
        return known[name]
    fields = payload.thrift_spec

    def begin(self: Any, **given: Any) -> None:
        for _, field, *_ in fields.values():
            setattr(self, field, given.pop(field, None))
        assert not given, f"{name} has no {', '.join(given)}"

    def write(self: Any, protocol: TBinaryProtocol) -> None:
        protocol.writeStruct(self, self.thrift_spec)

    def read(self: Any, protocol: TBinaryProtocol) -> None:
        protocol.readStruct(self, self.thrift_spec)

    base = TException if issubclass(payload, DeclaredException) else object
    made = known[name] = type(name, (base,), {"__init__": begin, "write": write, "read": read})
    spec: list[Any] = [None] * (max(fields, default=-1) + 1)
    for number, field in fields.items():
        more = field[2] if len(field) > 3 else None
        kind, arguments = _type_of((field[0], more) if more is not None else field[0], known)
        spec[number] = (number, kind, field[1], arguments, None)
    made.thrift_spec = tuple(spec)  # type: ignore[attr-defined]
    return made


def _type_of(declared: Any, known: dict[str, Any]) -> tuple[int, Any]:
    """A type with its arguments, as Apache Thrift's specs have them."""
    kind, more = declared if isinstance(declared, tuple) else (declared, None)
    if kind == BINARY:
        return TType.STRING, "BINARY"
    if kind == TType.STRUCT:
        made = _class_of(more, known)
        return kind, [made, made.thrift_spec]
    if kind == TType.LIST:
        element, arguments = _type_of(more, known)
        return kind, (element, arguments, False)
    if kind == TType.MAP:
        key, value = (_type_of(each, known) for each in more)
        return kind, (*key, *value, False)
    return kind, "UTF8" if kind == TType.STRING else None


@functools.cache
def _read(idl: str) -> tuple[Any, dict[str, tuple[Any, Any]]]:
    declared = thriftpy2.load(str(IDLS / f"{idl}.thrift"), module_name=f"apache_{idl}_thrift")
    known: dict[str, Any] = {}
    for space in (declared.subscriber, declared):
        for name, each in vars(space).items():
            if isinstance(each, type) and issubclass(each, TPayload | DeclaredException):
                _class_of(each, known)
            elif isinstance(each, type) and hasattr(each, "_VALUES_TO_NAMES"):
                known[name] = each
    (service,) = (
        each
        for each in vars(declared).values()
        if isinstance(each, type) and hasattr(each, "thrift_services")
    )
    calls = {
        method: tuple(_class_of(getattr(service, f"{method}_{end}"), known) for end in PARTS)
        for method in service.thrift_services
    }
    return types.SimpleNamespace(**known), calls


PARTS = ("args", "result")
