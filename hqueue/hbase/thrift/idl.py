"""The Thrift services of HBase's two gateways, as thriftpy2 modules."""

from __future__ import annotations

import importlib.resources
from typing import Any

import happybase  # noqa: F401  (loads Hbase_thrift)
import thriftpy2
from Hbase_thrift import Hbase, IllegalArgument, IOError, TScan  # type: ignore[import-not-found]

__all__ = ["Hbase", "IOError", "IllegalArgument", "TScan", "hbase2"]

with importlib.resources.as_file(
    importlib.resources.files("hqueue.rpc").joinpath("idl/hbase2.thrift")
) as _path:
    hbase2: Any = thriftpy2.load(str(_path), module_name="hqueue_hbase2_thrift")
