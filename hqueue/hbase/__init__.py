"""All that speaks to HBase, behind the store's ports: by its own RPC, or through Thrift gateways.

Every error is translated here, and every time-out set.
"""

from hqueue.hbase.native import NativeStore
from hqueue.hbase.thrift.store import GatewayStore

__all__ = ["GatewayStore", "NativeStore"]
