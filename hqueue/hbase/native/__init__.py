"""HBase by its own RPC: protobuf and cell blocks, straight to region servers and the master.

The region map and the connections, and the store's ports on them.
"""

from hqueue.hbase.native.native_store import NativeStore

__all__ = ["NativeStore"]
