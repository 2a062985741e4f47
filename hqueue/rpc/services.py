"""Thrift's services, as their IDL files say them."""

from __future__ import annotations

import functools
import importlib.resources
from typing import Any

import thriftpy2

__all__ = ["load"]


@functools.cache
def load(name: str) -> Any:
    """What ``idl/<name>.thrift`` declares: its services and structs. Reading it takes a while."""
    idl = importlib.resources.files("hqueue.rpc").joinpath(f"idl/{name}.thrift")
    with importlib.resources.as_file(idl) as path:
        return thriftpy2.load(str(path), module_name=f"hqueue_{name}_thrift")
