"""All that speaks to HBase: its two Thrift gateways, behind the store's ports.

Every error is translated here, and every time-out set.
"""

from hqueue.hbase.thrift.store import GatewayStore

__all__ = ["GatewayStore"]
