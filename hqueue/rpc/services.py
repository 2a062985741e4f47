"""Thrift's services, as their IDL files say them."""

from __future__ import annotations

import functools
import importlib.resources
from typing import Any

import thriftpy2

__all__ = ["given", "load"]


@functools.cache
def load(name: str) -> Any:
    """What ``idl/<name>.thrift`` declares: its services and structs. Reading it takes a while."""
    idl = importlib.resources.files("hqueue.rpc").joinpath(f"idl/{name}.thrift")
    with importlib.resources.as_file(idl) as path:
        return thriftpy2.load(str(path), module_name=f"hqueue_{name}_thrift")


def given(struct: Any) -> Any:
    """A struct that a call was given, or None.

    In Go, C++, Rust and others an argument that is a struct can't be left out: one that the caller
    does not give arrives without any field. So a struct that has none counts as left out.
    """
    if struct is None or all(value is None for value in vars(struct).values()):
        return None
    return struct
