"""The messages of HBase's RPC: `pb` has them by their names, as ``pb.ScanRequest``."""

from __future__ import annotations

import importlib.resources
import types
from typing import Any

from hqueue.hbase.native.protocol.idl import load

__all__ = ["pb"]

_FILE = "hbase.proto"

pb: Any = types.SimpleNamespace(
    **load(importlib.resources.files(__package__).joinpath(_FILE).read_text("utf-8"), _FILE)
)
"""What the file beside this one defines; a message's enums are its attributes."""
