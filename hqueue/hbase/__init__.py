"""Everything that talks to HBase, behind the store's ports: by HBase's own RPC, or through Thrift
gateways.

Every error is translated here, and every time-out set. Each way is imported where it is chosen.
"""
