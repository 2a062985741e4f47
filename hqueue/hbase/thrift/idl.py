"""The Thrift services of HBase's two gateways, as thriftpy2 modules."""

from __future__ import annotations

from typing import Any

import happybase  # noqa: F401  (loads Hbase_thrift)
from Hbase_thrift import Hbase, IllegalArgument, IOError, TScan  # type: ignore[import-not-found]

from hqueue.rpc.services import load

__all__ = ["Hbase", "IOError", "IllegalArgument", "TScan", "hbase2"]

hbase2: Any = load("hbase2")
